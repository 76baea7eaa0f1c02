import java.time.Duration;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * What a client does through the proxy: it sends a record and reads it back, has one refused, and sends another
 * (tests/compatibility). {@code bootstrap= topic=}. One line.
 */
public final class Compatibility {
    public static void main(String[] args) throws Exception {
        Cli cli = new Cli(args);
        String topic = cli.get("topic");
        String refusal = "";
        try (var producer = new KafkaProducer<>(
                cli.client("delivery.timeout.ms", 30000, "request.timeout.ms", 10000, "linger.ms", 0),
                new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.send(new ProducerRecord<>(topic, 0, null, "first".getBytes())).get();
            try {
                producer.send(new ProducerRecord<>(topic, 0, null, new byte[100_000])).get();
            } catch (ExecutionException refused) {
                refusal = String.valueOf(refused.getCause());
            }
            producer.send(new ProducerRecord<>(topic, 0, null, "last".getBytes())).get();
        }
        StringBuilder read = new StringBuilder();
        try (var consumer = new KafkaConsumer<>(cli.client(), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
            while (!read.toString().endsWith("last ") && System.nanoTime() < end) {
                consumer.poll(Duration.ofMillis(500)).forEach(
                    record -> read.append(new String(record.value(), 0, Math.min(record.value().length, 9))).append(' '));
            }
        }
        Cli.line("refusal", refusal, "read", read.toString().trim());
    }
}
