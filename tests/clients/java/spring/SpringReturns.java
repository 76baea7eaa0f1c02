import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.listener.BatchListenerFailedException;
import org.springframework.kafka.listener.BatchMessageListener;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.DefaultErrorHandler;
import org.springframework.kafka.listener.KafkaMessageListenerContainer;
import org.springframework.kafka.listener.MessageListener;
import org.springframework.util.backoff.FixedBackOff;

/**
 * A listener of Spring Kafka that fails at large records, with the {@code DefaultErrorHandler}, which seeks to the
 * record that failed (a listener of batches names it).
 *
 * <p>{@code bootstrap= topic= mode=record|batch [times=4] [largest=100000]}: it ends after so many failures.
 */
public final class SpringReturns {
    public static void main(String[] args) throws Exception {
        Cli cli = new Cli(args);
        int largest = cli.getInt("largest", 100_000);
        CountDownLatch failures = new CountDownLatch(cli.getInt("times", 4));
        AtomicInteger handled = new AtomicInteger();
        Properties settings = cli.client("group.id", cli.get("topic") + "-" + cli.get("mode"), "client.id",
            "spring-" + cli.get("mode"), "auto.offset.reset", "earliest");
        var factory = new DefaultKafkaConsumerFactory<byte[], byte[]>(
            settings.stringPropertyNames().stream().collect(Collectors.toMap(name -> name, settings::getProperty)),
            new ByteArrayDeserializer(), new ByteArrayDeserializer());
        var properties = new ContainerProperties(cli.get("topic"));
        MessageListener<byte[], byte[]> one = record -> {
            handle(record, largest, failures);
            handled.incrementAndGet();
        };
        BatchMessageListener<byte[], byte[]> many = records -> {
            for (var record : records) {
                try {
                    one.onMessage(record);
                } catch (IllegalStateException e) {
                    throw new BatchListenerFailedException(e.getMessage(), record);
                }
            }
        };
        properties.setMessageListener(cli.get("mode").equals("batch") ? many : one);
        var container = new KafkaMessageListenerContainer<>(factory, properties);
        container.setCommonErrorHandler(new DefaultErrorHandler(new FixedBackOff(50, FixedBackOff.UNLIMITED_ATTEMPTS)));
        container.start();
        failures.await();
        container.stop();
        Cli.line("failed", true, "handled", handled.get());
    }

    private static void handle(ConsumerRecord<byte[], byte[]> record, int largest, CountDownLatch failures) {
        if (record.value().length > largest) {
            failures.countDown();
            throw new IllegalStateException("a value of " + record.value().length + " bytes");
        }
    }
}
