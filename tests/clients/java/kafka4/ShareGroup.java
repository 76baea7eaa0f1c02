import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.UUID;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A share group: every record is delivered and accepted; one is released once and comes again.
 *
 * <p>{@code bootstrap= topic= [records=50]}. Lines: {@code accepted}, {@code released}, {@code again} (the number of
 * times the released one was delivered).
 */
public final class ShareGroup {
    public static void main(String[] args) throws Exception {
        Cli cli = new Cli(args);
        int records = cli.getInt("records", 50);
        String group = "share-" + UUID.randomUUID();
        try (Admin admin = Admin.create(cli.client())) {
            ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(
                new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET)))).all().get();
        }
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(cli.client(), new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < records; i++) {
                producer.send(new ProducerRecord<>(cli.get("topic"), "record-" + i));
            }
        }
        Set<String> accepted = new TreeSet<>();
        int deliveries = 0;
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(
                cli.client("group.id", group, "share.acknowledgement.mode", "explicit"), new StringDeserializer(),
                new StringDeserializer())) {
            consumer.subscribe(List.of(cli.get("topic")));
            long end = System.nanoTime() + 90_000_000_000L;
            while (accepted.size() < records && System.nanoTime() < end) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    if (record.value().equals("record-7") && ++deliveries == 1) {
                        consumer.acknowledge(record, AcknowledgeType.RELEASE);
                    } else {
                        consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                        accepted.add(record.value());
                    }
                }
                consumer.commitSync();
            }
        }
        Cli.line("accepted", accepted.size(), "released", "record-7", "deliveries", deliveries);
    }
}
