import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads a topic from its start to the end it has now.
 *
 * <p>{@code bootstrap= topic= [p.isolation.level=read_committed]}. One line with {@code values}: the first word of
 * each value, in the order of partitions and offsets, and {@code bytes}: their sizes.
 */
public final class ReadAll {
    public static void main(String[] args) throws Exception {
        Cli cli = new Cli(args);
        List<Object> values = new ArrayList<>();
        List<Object> bytes = new ArrayList<>();
        var properties = cli.client("enable.auto.commit", false, "auto.offset.reset", "earliest");
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> partitions = consumer.partitionsFor(cli.get("topic")).stream()
                .map(info -> new TopicPartition(info.topic(), info.partition()))
                .sorted(java.util.Comparator.comparingInt(TopicPartition::partition)).toList();
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            for (TopicPartition partition : partitions) {
                consumer.assign(List.of(partition));
                consumer.seekToBeginning(List.of(partition));
                // Aborted records and transaction markers are skipped, so the position tells, not the records.
                while (consumer.position(partition) < ends.get(partition)) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                        String text = Cli.text(record.value());
                        values.add(text.substring(0, Math.min(64, Math.max(0, text.indexOf(' ') < 0 ? text.length() : text.indexOf(' ')))));
                        bytes.add(record.serializedValueSize());
                    }
                }
            }
        }
        Cli.line("records", values.size(), "values", values, "bytes", bytes);
    }
}
