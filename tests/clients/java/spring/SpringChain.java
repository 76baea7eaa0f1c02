import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.retrytopic.DeadLetterPublishingRecovererFactory;
import org.springframework.kafka.retrytopic.RetryTopicConfiguration;
import org.springframework.kafka.retrytopic.RetryTopicConfigurationBuilder;
import org.springframework.kafka.retrytopic.RetryTopicConfigurationSupport;
import org.springframework.kafka.support.ProducerListener;
import org.springframework.scheduling.TaskScheduler;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;

/**
 * An application of Spring Kafka whose listener fails on every record: a main topic, its retry topics
 * ({@code -retry-0} …) and its dead-letter topic ({@code -dlt}), which must be there.
 *
 * <p>{@code bootstrap= topic= bytes= [content=random|a] [attempts=5] [depth=110] [compression=none]
 * [writer-max-request-size=10000000|default]}: sends one record
 * of so many bytes and a small one behind it, the way {@code compression} says; retries and dead letters are written
 * uncompressed, with the stack traces of all failures so far, {@code depth} calls deep. It runs until it is ended,
 * and says what happens, one line each: {@code sent}, {@code told} (sending failed, and is tried again), {@code failed}
 * (the listener), {@code refused} (a retry or a dead letter), {@code dead_letter} (it arrived).
 */
public final class SpringChain {
    static final String KEY = "k-0123456789";
    static final String SMALL_KEY = "k-small";

    private static Cli cli;

    public static void main(String[] args) throws Exception {
        cli = new Cli(args);
        try (var app = new AnnotationConfigApplicationContext(App.class)) {
            app.registerShutdownHook();
            Properties producer = cli.client("compression.type", cli.get("compression", "none"));
            var factory = new DefaultKafkaProducerFactory<byte[], byte[]>(settings(producer, "producer"),
                new ByteArraySerializer(), new ByteArraySerializer());
            var template = new KafkaTemplate<>(factory);
            byte[] value = content(cli.get("content", "random"), cli.getInt("bytes", 1_000_000));
            while (!send(template, KEY, value)) {
                Thread.sleep(300);
            }
            send(template, SMALL_KEY, new byte[10]);
            factory.destroy();
            Thread.currentThread().join();
        }
    }

    private static boolean send(KafkaTemplate<byte[], byte[]> template, String key, byte[] value)
            throws InterruptedException {
        try {
            template.send(new ProducerRecord<>(cli.get("topic"), 0, key.getBytes(), value)).get();
            Cli.line("event", "sent", "key", key);
            return true;
        } catch (java.util.concurrent.ExecutionException failed) {
            Throwable cause = failed.getCause();
            // Spring wraps what the producer says.
            Cli.line(Cli.failure(cause.getCause() == null ? cause : cause.getCause(), "event", "told", "key", key));
            return false;
        }
    }

    /** {@code json}: lines that a codec shrinks to about a third. */
    private static byte[] content(String kind, int bytes) {
        if (!kind.equals("json")) {
            return Cli.value(kind, bytes, 42);
        }
        var random = new java.util.Random(42);
        var lines = new StringBuilder();
        while (lines.length() < bytes) {
            lines.append("{\"id\":").append(random.nextInt(1_000_000_000)).append(",\"note\":\"")
                .append(Long.toHexString(random.nextLong())).append("\",\"status\":\"delivered\",\"country\":\"PT\"}\n");
        }
        return java.util.Arrays.copyOf(lines.toString().getBytes(), bytes);
    }

    private static Map<String, Object> settings(Properties properties, String what) {
        // What Java's own producer refuses never gets anywhere near a gate.
        if (what.equals("producer")) {
            properties.put("max.request.size", "10000000");
        }
        String writers = cli.get("writer-max-request-size", "10000000");
        if (what.equals("writer") && !writers.equals("default")) {
            properties.put("max.request.size", writers);
        }
        return properties.stringPropertyNames().stream()
            .collect(Collectors.toMap(name -> name, properties::getProperty));
    }

    @Configuration
    @EnableKafka
    public static class App extends RetryTopicConfigurationSupport {
        @Bean
        ConcurrentKafkaListenerContainerFactory<byte[], byte[]> kafkaListenerContainerFactory() {
            Properties consumer = cli.client("group.id", cli.get("topic") + "-group", "auto.offset.reset", "earliest");
            var factory = new ConcurrentKafkaListenerContainerFactory<byte[], byte[]>();
            factory.setConsumerFactory(new DefaultKafkaConsumerFactory<>(settings(consumer, "consumer"),
                new ByteArrayDeserializer(), new ByteArrayDeserializer()));
            return factory;
        }

        @Bean
        KafkaTemplate<byte[], byte[]> deadLetters() {
            var template = new KafkaTemplate<>(new DefaultKafkaProducerFactory<byte[], byte[]>(
                settings(cli.client(), "writer"), new ByteArraySerializer(), new ByteArraySerializer()));
            template.setProducerListener(new ProducerListener<>() {
                @Override
                public void onError(ProducerRecord<byte[], byte[]> record, RecordMetadata metadata, Exception failure) {
                    Cli.line(Cli.failure(failure, "event", "refused", "topic", record.topic(), "key",
                        Cli.text(record.key()), "headers_bytes", bytes(record.headers())));
                }
            });
            return template;
        }

        @Bean
        RetryTopicConfiguration chain(KafkaTemplate<byte[], byte[]> deadLetters) {
            return RetryTopicConfigurationBuilder.newInstance()
                .includeTopics(List.of(cli.get("topic")))
                .maxAttempts(cli.getInt("attempts", 5))
                .exponentialBackoff(50, 1.1, 1000)
                .retryTopicSuffix("-retry")
                .suffixTopicsWithIndexValues()
                .dltHandlerMethod("notes", "deadLetter")
                .doNotAutoCreateRetryTopics()
                .create(deadLetters);
        }

        /** The trace of each failure stays, as it did in every Spring Kafka before 2.8.4. */
        @Override
        protected Consumer<DeadLetterPublishingRecovererFactory> configureDeadLetterPublishingContainerFactory() {
            return factory -> factory.setDeadLetterPublishingRecovererCustomizer(
                recoverer -> recoverer.setStripPreviousExceptionHeaders(false));
        }

        @Bean
        TaskScheduler scheduler() {
            return new ThreadPoolTaskScheduler();
        }

        @Bean
        Notes notes() {
            return new Notes();
        }

        @Bean
        String topic() {
            return cli.get("topic");
        }
    }

    /** The application's own code. */
    public static class Notes {
        @KafkaListener(topics = "#{@topic}", groupId = "#{@topic}-group")
        public void listen(ConsumerRecord<byte[], byte[]> record) {
            Cli.line("event", "failed", "topic", record.topic(), "key", Cli.text(record.key()), "headers_bytes",
                bytes(record.headers()));
            parse(cli.getInt("depth", 110));
        }

        public void deadLetter(ConsumerRecord<byte[], byte[]> record) {
            Cli.line("event", "dead_letter", "topic", record.topic(), "key", Cli.text(record.key()), "value_bytes",
                record.value().length, "headers_bytes", bytes(record.headers()));
        }

        private static int parse(int depth) {
            if (depth == 0) {
                throw new IllegalStateException("the note cannot be read");
            }
            return parse(depth - 1) + 1;
        }
    }

    private static int bytes(Iterable<Header> headers) {
        int bytes = 0;
        for (Header header : headers) {
            bytes += header.key().length() + (header.value() == null ? 0 : header.value().length);
        }
        return bytes;
    }
}
