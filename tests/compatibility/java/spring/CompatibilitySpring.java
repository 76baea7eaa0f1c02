import java.util.Map;
import java.util.StringJoiner;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.KafkaMessageListenerContainer;
import org.springframework.kafka.listener.MessageListener;

/**
 * What an application of Spring Kafka does through the proxy: its template sends a record, has one refused, sends another; its
 * listener reads. {@code bootstrap= topic=}. One line.
 */
public final class CompatibilitySpring {
    public static void main(String[] args) throws Exception {
        Cli cli = new Cli(args);
        String topic = cli.get("topic");
        String refusal = "";
        var producers = new DefaultKafkaProducerFactory<>(Map.of("bootstrap.servers", cli.get("bootstrap")),
            new ByteArraySerializer(), new ByteArraySerializer());
        var template = new KafkaTemplate<>(producers);
        template.send(topic, "first".getBytes()).get();
        try {
            template.send(topic, new byte[100_000]).get();
        } catch (ExecutionException failed) {
            // Spring wraps what the producer says.
            Throwable cause = failed.getCause();
            refusal = String.valueOf(cause.getCause() == null ? cause : cause.getCause());
        }
        template.send(topic, "last".getBytes()).get();
        producers.destroy();

        var read = new StringJoiner(" ");
        var isOver = new CountDownLatch(1);
        var properties = new ContainerProperties(topic);
        properties.setMessageListener((MessageListener<byte[], byte[]>) record -> {
            read.add(new String(record.value(), 0, Math.min(record.value().length, 9)));
            if (read.toString().endsWith("last")) {
                isOver.countDown();
            }
        });
        var container = new KafkaMessageListenerContainer<>(new DefaultKafkaConsumerFactory<>(
            Map.of("bootstrap.servers", cli.get("bootstrap"), "group.id", topic, "auto.offset.reset", "earliest"),
            new ByteArrayDeserializer(), new ByteArrayDeserializer()), properties);
        container.start();
        isOver.await(30, TimeUnit.SECONDS);
        container.stop();
        Cli.line("refusal", refusal, "read", read.toString());
    }
}
