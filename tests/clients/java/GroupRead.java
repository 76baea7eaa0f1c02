import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A group of two reads numbered records, such as IdempotentLoad sends, until all have come.
 *
 * <p>{@code bootstrap= topic= group= records=20000}. A line {@code reading} once both are assigned partitions; at the end
 * {@code read} (numbers seen), {@code repeated} (seen again) and {@code errors}: what poll and commit threw.
 */
public final class GroupRead {
    private static final Map<Integer, Boolean> READ = new ConcurrentHashMap<>();
    private static final AtomicInteger REPEATED = new AtomicInteger();
    private static final AtomicInteger ASSIGNED = new AtomicInteger();

    public static void main(String[] args) throws Exception {
        Cli cli = new Cli(args);
        int records = cli.getInt("records", 20000);
        List<Object> errors = java.util.Collections.synchronizedList(new ArrayList<>());
        List<Thread> members = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            Thread member = new Thread(() -> consume(cli, records, errors));
            member.start();
            members.add(member);
        }
        for (Thread member : members) {
            member.join();
        }
        Cli.line("read", READ.size(), "repeated", REPEATED.get(), "errors", errors);
    }

    private static void consume(Cli cli, int records, List<Object> errors) {
        var properties = cli.client("group.id", cli.get("group"), "enable.auto.commit", false,
            "auto.offset.reset", "earliest", "max.poll.records", 500);
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(cli.get("topic")));
            boolean shared = false;
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(240);
            while (READ.size() < records && System.nanoTime() < end) {
                try {
                    var polled = consumer.poll(Duration.ofMillis(200));
                    for (ConsumerRecord<byte[], byte[]> record : polled) {
                        String text = Cli.text(record.value());
                        if (READ.put(Integer.valueOf(text.substring(0, text.indexOf(' '))), true) != null) {
                            REPEATED.incrementAndGet();
                        }
                    }
                    if (!polled.isEmpty()) {
                        consumer.commitSync();
                    }
                    if (!shared && !consumer.assignment().isEmpty()) {
                        shared = true;
                        if (ASSIGNED.incrementAndGet() == 2) {
                            Cli.line("reading", true);
                        }
                    }
                } catch (RuntimeException error) {
                    errors.add(error.toString());
                }
            }
        }
    }
}
