import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The Java client of {@code make soak}; soak.py and tests/compatibility/go/soak do the same.
 *
 * <p>{@code role=produce|consume|read bootstrap= out=FILE p.…}. What each writes, and its other arguments: tests/it/soak.rs.
 */
public final class Soak {
    private final Cli cli;
    private final PrintWriter out;
    private long random;

    private Soak(Cli cli) throws Exception {
        this.cli = cli;
        this.out = new PrintWriter(Files.newBufferedWriter(Path.of(cli.get("out"))));
        this.random = cli.getInt("seed", 0);
    }

    public static void main(String[] args) throws Exception {
        Soak soak = new Soak(new Cli(args));
        switch (soak.cli.get("role")) {
            case "produce" -> soak.produce();
            case "consume" -> soak.consume();
            case "read" -> soak.read();
            default -> throw new IllegalArgumentException("role");
        }
        soak.out.close();
    }

    private int below(int n) {
        random = random * 6364136223846793005L + 1442695040888963407L;
        return (int) ((random >>> 33) % n);
    }

    private synchronized void line(String text) {
        out.println(text);
    }

    private KafkaProducer<byte[], byte[]> producer() {
        return new KafkaProducer<>(cli.client("acks", "all", "enable.idempotence", true, "linger.ms", 5, "max.request.size",
            10_000_000), new ByteArraySerializer(), new ByteArraySerializer());
    }

    private void produce() throws Exception {
        String topic = cli.get("topic");
        int[] specials = Arrays.stream(cli.get("specials").split(",")).mapToInt(Integer::parseInt).toArray();
        int every = cli.getInt("every", 20);
        boolean isSingle = cli.get("single").equals("true");
        int partitions = cli.getInt("partitions", 1);
        AtomicBoolean isBroken = new AtomicBoolean();
        KafkaProducer<byte[], byte[]> producer = producer();
        for (int number = 0; !Files.exists(Path.of(cli.get("stop"))); number++) {
            boolean isSpecial = below(every) == 0;
            int bytes = isSpecial ? specials[below(specials.length)] : 40 + below(1000);
            if (isSpecial || isSingle) {
                producer.flush();
            }
            byte[] value = new byte[bytes];
            Arrays.fill(value, (byte) 'x');
            byte[] head = (cli.get("name") + " " + number + " ").getBytes(StandardCharsets.US_ASCII);
            System.arraycopy(head, 0, value, 0, head.length);
            int at = number;
            long sent = System.currentTimeMillis();
            try {
                producer.send(new ProducerRecord<>(topic, number % partitions, null, value), (stored, error) -> {
                    long done = System.currentTimeMillis();
                    String result = error == null ? "ok" : error instanceof RecordTooLargeException ? "size"
                        : error.toString().replaceAll("\\s", "_");
                    isBroken.compareAndSet(false, !result.equals("ok") && !result.equals("size"));
                    line(at + " " + bytes + " " + at % partitions + " " + sent + " " + done + " "
                        + (error == null ? stored.offset() : -1) + " " + result);
                });
            } catch (RuntimeException error) {
                line(at + " " + bytes + " " + at % partitions + " " + sent + " " + System.currentTimeMillis() + " -1 "
                    + error.toString().replaceAll("\\s", "_"));
                isBroken.set(true);
            }
            if (isSpecial || isSingle) {
                producer.flush();
            }
            if (isBroken.get()) {
                // It may be one that can do no more.
                producer.close();
                producer = producer();
                isBroken.set(false);
            }
            Thread.sleep(cli.getInt("period_ms", 50));
        }
        producer.close();
    }

    private void note(ConsumerRecord<byte[], byte[]> record) {
        String[] head = new String(record.value(), 0, Math.min(40, record.value().length), StandardCharsets.US_ASCII).split(" ");
        line(record.topic() + " " + record.partition() + " " + record.offset() + " " + head[0] + " " + head[1] + " "
            + record.value().length);
    }

    /** The file {@code ends} (topic, partition and end offset on each line) says that nothing more is to come. */
    private Map<TopicPartition, Long> ends() throws Exception {
        Map<TopicPartition, Long> ends = new HashMap<>();
        for (String line : Files.readAllLines(Path.of(cli.get("ends")))) {
            String[] words = line.split(" ");
            ends.put(new TopicPartition(words[0], Integer.parseInt(words[1])), Long.parseLong(words[2]));
        }
        return ends;
    }

    private boolean isAtEnd(Map<TopicPartition, Long> seen) throws Exception {
        if (!Files.exists(Path.of(cli.get("ends")))) {
            return false;
        }
        return ends().entrySet().stream().allMatch(end -> seen.getOrDefault(end.getKey(), 0L) >= end.getValue());
    }

    private void consume() throws Exception {
        try (var consumer = new KafkaConsumer<>(cli.client("group.id", cli.get("name"), "auto.offset.reset", "earliest",
                "auto.commit.interval.ms", 1000), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(cli.get("topics").split(",")));
            Map<TopicPartition, Long> seen = new HashMap<>();
            while (!isAtEnd(seen)) {
                for (var record : consumer.poll(Duration.ofMillis(500))) {
                    note(record);
                    seen.merge(new TopicPartition(record.topic(), record.partition()), record.offset() + 1, Math::max);
                }
            }
        }
    }

    private void read() throws Exception {
        Map<TopicPartition, Long> ends = ends();
        try (var consumer = new KafkaConsumer<>(cli.client("auto.offset.reset", "none"), new ByteArrayDeserializer(),
                new ByteArrayDeserializer())) {
            consumer.assign(ends.keySet());
            consumer.seekToBeginning(ends.keySet());
            List<TopicPartition> left = new ArrayList<>(ends.keySet());
            while (!left.isEmpty()) {
                consumer.poll(Duration.ofMillis(500)).forEach(this::note);
                left.removeIf(partition -> consumer.position(partition) >= ends.get(partition));
            }
        }
    }
}
