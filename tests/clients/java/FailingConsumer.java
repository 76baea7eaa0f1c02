import java.time.Duration;
import java.util.List;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.SerializationException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Deserializer;

/**
 * A consumer that cannot deserialise large values, and is started anew each time it fails.
 *
 * <p>{@code bootstrap= topic= starts=3 [largest=100000]}. One line for each start: what it read and what ended it.
 */
public final class FailingConsumer {
    public static void main(String[] args) throws Exception {
        Cli cli = new Cli(args);
        int largest = cli.getInt("largest", 100_000);
        Deserializer<byte[]> values = (topic, bytes) -> {
            if (bytes != null && bytes.length > largest) {
                throw new SerializationException(bytes.length + " bytes");
            }
            return bytes;
        };
        TopicPartition partition = new TopicPartition(cli.get("topic"), 0);
        for (int start = 0; start < cli.getInt("starts", 3); start++) {
            int read = 0;
            String ended = null;
            try (KafkaConsumer<byte[], byte[]> consumer =
                    new KafkaConsumer<>(cli.client("enable.auto.commit", false), new ByteArrayDeserializer(), values)) {
                consumer.assign(List.of(partition));
                consumer.seekToBeginning(List.of(partition));
                long until = System.nanoTime() + Duration.ofSeconds(30).toNanos();
                while (ended == null && System.nanoTime() < until) {
                    try {
                        read += consumer.poll(Duration.ofMillis(500)).count();
                    } catch (SerializationException e) {
                        ended = e.getClass().getSimpleName();
                    }
                }
            }
            Cli.line("start", start, "read", read, "ended", ended);
        }
    }
}
