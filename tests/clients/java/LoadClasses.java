import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Has a producer, a consumer and an admin client try to reach nobody, so that their classes are loaded: a JVM that
 * archives them at its end lets later ones start in half the time (scripts/java-classes.sh).
 */
public final class LoadClasses {
    public static void main(String[] args) throws InterruptedException {
        Map<String, Object> properties = new HashMap<>();
        // Port 1: refused at once.
        properties.put("bootstrap.servers", "127.0.0.1:1");
        properties.put("group.id", "nobody");
        properties.put("max.block.ms", 100);
        properties.put("request.timeout.ms", 100);
        properties.put("default.api.timeout.ms", 100);
        properties.put("delivery.timeout.ms", 100);
        properties.put("linger.ms", 0);
        try (var producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.send(new ProducerRecord<>("none", new byte[1])).get();
        } catch (ExecutionException unreachable) {
            // As it must be.
        }
        try (var consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of("none"));
            consumer.poll(Duration.ofMillis(100));
        }
        try (Admin admin = Admin.create(properties)) {
            admin.listTopics().names().get();
        } catch (ExecutionException unreachable) {
            // As it must be.
        }
    }
}
