import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Two members of one group share a topic, commit, and leave; a third goes on where they stopped.
 *
 * <p>{@code bootstrap= topic= protocol=classic|consumer [partitions=2] [records=200]}: the topic is empty and has so
 * many partitions. Lines: {@code assigned} by member, {@code read}, {@code committed}, {@code resumed}.
 */
public final class Groups {
    private static final CountDownLatch BOTH_ASSIGNED = new CountDownLatch(2);
    private static final Set<String> READ = ConcurrentHashMap.newKeySet();

    public static void main(String[] args) throws Exception {
        Cli cli = new Cli(args);
        String group = "groups-" + UUID.randomUUID();
        int records = cli.getInt("records", 200);
        int partitions = cli.getInt("partitions", 2);

        List<Thread> members = new ArrayList<>();
        List<Throwable> failed = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            int number = i;
            Thread member = new Thread(() -> consume(cli, group, number, records));
            member.setUncaughtExceptionHandler((thread, thrown) -> {
                thrown.printStackTrace();
                failed.add(thrown);
            });
            member.start();
            members.add(member);
        }
        if (!BOTH_ASSIGNED.await(90, TimeUnit.SECONDS)) {
            throw new IllegalStateException("the members did not share the partitions");
        }
        send(cli, 0, records, partitions);
        for (Thread member : members) {
            member.join();
        }
        if (!failed.isEmpty()) {
            System.exit(1);
        }
        Cli.line("read", READ.size());

        try (Admin admin = Admin.create(cli.client())) {
            long committed = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().values()
                .stream().mapToLong(offset -> offset.offset()).sum();
            Cli.line("committed", committed);
        }

        send(cli, records, records + 10, partitions);
        Set<String> resumed = new TreeSet<>();
        try (KafkaConsumer<String, String> consumer = consumer(cli, group)) {
            consumer.subscribe(List.of(cli.get("topic")));
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(90);
            while (resumed.size() < 10 && System.nanoTime() < end) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    resumed.add(record.value());
                }
            }
        }
        Cli.line("resumed", resumed.size(), "repeated", resumed.stream().filter(READ::contains).count());
    }

    private static void send(Cli cli, int from, int to, int partitions) {
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(cli.client(), new StringSerializer(), new StringSerializer())) {
            for (int i = from; i < to; i++) {
                producer.send(new ProducerRecord<>(cli.get("topic"), i % partitions, null, "record-" + i));
            }
        }
    }

    private static KafkaConsumer<String, String> consumer(Cli cli, String group) {
        return new KafkaConsumer<>(cli.client("group.id", group, "group.protocol", cli.get("protocol"),
            "enable.auto.commit", false, "auto.offset.reset", "earliest"), new StringDeserializer(),
            new StringDeserializer());
    }

    private static void consume(Cli cli, String group, int number, int records) {
        try (KafkaConsumer<String, String> consumer = consumer(cli, group)) {
            consumer.subscribe(List.of(cli.get("topic")));
            boolean shared = false;
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(90);
            while (READ.size() < records && System.nanoTime() < end) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    READ.add(record.value());
                }
                if (!shared && consumer.assignment().size() == 1) {
                    shared = true;
                    Cli.line("member", number, "assigned", consumer.assignment().size());
                    BOTH_ASSIGNED.countDown();
                }
            }
            consumer.commitSync();
        }
    }
}
