import java.security.MessageDigest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads records and says what each is.
 *
 * <p>{@code bootstrap= topic= records=5 [group=] [from=OFFSET] [back=N] [pause=N] [seconds=60] [p.NAME=]}. With {@code group} it
 * subscribes and commits what it has read; else it is assigned partition 0 and seeks to {@code from}. With {@code back} it
 * seeks back to offset N once, after it has read all. With {@code pause} it pauses N times, each time it has read
 * something, until a poll brings nothing. One line a record; at the end {@code committed}, {@code position},
 * {@code polls} that brought nothing.
 */
public final class Originals {
    public static void main(String[] args) throws Exception {
        Cli cli = new Cli(args);
        int wanted = cli.getInt("records", 1);
        String topic = cli.get("topic");
        String group = cli.get("group", "");
        var properties = cli.client("enable.auto.commit", false, "auto.offset.reset", "earliest");
        if (!group.isEmpty()) {
            properties.put("group.id", group);
        }
        int read = 0;
        int empty = 0;
        int paused = 0;
        boolean goesBack = cli.getInt("back", -1) >= 0;
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(cli.getInt("seconds", 60));
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            if (group.isEmpty()) {
                TopicPartition partition = new TopicPartition(topic, 0);
                consumer.assign(List.of(partition));
                consumer.seek(partition, cli.getInt("from", 0));
            } else {
                consumer.subscribe(List.of(topic));
            }
            while (read < wanted && System.nanoTime() < end) {
                var polled = consumer.poll(Duration.ofMillis(500));
                empty += polled.isEmpty() ? 1 : 0;
                for (ConsumerRecord<byte[], byte[]> record : polled) {
                    read++;
                    say(record);
                }
                if (!polled.isEmpty() && !group.isEmpty()) {
                    consumer.commitSync();
                }
                if (!polled.isEmpty() && paused < cli.getInt("pause", 0)) {
                    paused++;
                    consumer.pause(consumer.assignment());
                    while (!consumer.poll(Duration.ofMillis(200)).isEmpty()) {
                        throw new IllegalStateException("read while paused");
                    }
                    consumer.resume(consumer.paused());
                }
                if (read >= wanted && goesBack) {
                    goesBack = false;
                    read = 0;
                    wanted -= cli.getInt("back", 0);
                    consumer.seek(new TopicPartition(topic, 0), cli.getInt("back", 0));
                }
            }
            long position = -1;
            long committed = -1;
            for (TopicPartition partition : consumer.assignment()) {
                if (partition.partition() == 0) {
                    position = consumer.position(partition);
                    var offsets = group.isEmpty() ? null : consumer.committed(java.util.Set.of(partition)).get(partition);
                    committed = offsets == null ? -1 : offsets.offset();
                }
            }
            Cli.line("end", true, "position", position, "committed", committed, "empty", empty,
                "paused", paused);
        }
    }

    private static void say(ConsumerRecord<byte[], byte[]> record) throws Exception {
        List<Object> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            headers.add(header.key());
        }
        byte[] value = record.value();
        String digest = value == null ? null
            : HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(value));
        Cli.line("partition", record.partition(), "offset", record.offset(), "key", Cli.text(record.key()),
            "bytes", value == null ? -1 : value.length, "sha256", digest, "headers", headers,
            "timestamp", record.timestamp());
    }
}
