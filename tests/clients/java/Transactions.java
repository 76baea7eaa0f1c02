import java.util.Map;
import java.util.UUID;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * One transactional producer: a commit, an abort, a commit with offsets of a group, one with a record that is too
 * large, and one after it.
 *
 * <p>{@code bootstrap= topic= [large=2000000] [pad=0]}: the topic must refuse a batch of {@code large} bytes; {@code pad}
 * characters more stand behind a value's first word. One line a
 * transaction. Of the records, {@code committed-…} are to be seen by read_committed, {@code aborted-…} not.
 */
public final class Transactions {
    public static void main(String[] args) throws Exception {
        Cli cli = new Cli(args);
        String topic = cli.get("topic");
        int more = cli.getInt("pad", 0);
        String pad = more == 0 ? "" : " " + "x".repeat(more);
        String id = "transactions-" + UUID.randomUUID();
        var properties = cli.client("transactional.id", id, "max.request.size", 16 << 20, "delivery.timeout.ms", 60000,
            "linger.ms", 0);
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();

            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "committed-1" + pad));
            producer.send(new ProducerRecord<>(topic, "committed-2" + pad));
            producer.commitTransaction();
            Cli.line("transaction", "commit", "ok", true);

            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "aborted-1" + pad)).get();
            producer.abortTransaction();
            Cli.line("transaction", "abort", "ok", true);

            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "committed-3" + pad));
            try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(cli.client("group.id", id),
                    new StringDeserializer(), new StringDeserializer())) {
                producer.sendOffsetsToTransaction(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(2)),
                    consumer.groupMetadata());
            }
            producer.commitTransaction();
            Cli.line("transaction", "offsets", "ok", true, "group", id);

            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "aborted-2" + pad));
            producer.send(new ProducerRecord<>(topic, "x".repeat(cli.getInt("large", 2_000_000))));
            try {
                producer.commitTransaction();
                Cli.line("transaction", "large", "ok", true);
            } catch (KafkaException e) {
                Throwable cause = e;
                while (cause.getCause() != null) {
                    cause = cause.getCause();
                }
                Cli.line(Cli.failure(cause, "transaction", "large"));
                producer.abortTransaction();
            }

            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "committed-4" + pad));
            producer.commitTransaction();
            Cli.line("transaction", "after", "ok", true);
        }
    }
}
