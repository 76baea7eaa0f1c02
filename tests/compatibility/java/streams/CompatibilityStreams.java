import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.ErrorHandlerContext;
import org.apache.kafka.streams.errors.ProductionExceptionHandler;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;

/**
 * What an application of Kafka Streams does through the proxy: of three records it makes three, of which the second is refused.
 * First as it comes, then with a handler that goes on. {@code bootstrap= topic=}. One line.
 */
public final class CompatibilityStreams {
    /** Goes on without what was refused. */
    public static final class GoOn implements ProductionExceptionHandler {
        @Override
        public Response handleError(ErrorHandlerContext context, ProducerRecord<byte[], byte[]> record, Exception failed) {
            refused.complete(failed.toString());
            return Response.resume();
        }

        @Override
        public void configure(Map<String, ?> configs) {}
    }

    private static final CompletableFuture<String> refused = new CompletableFuture<>();
    private static Cli cli;

    public static void main(String[] args) throws Exception {
        cli = new Cli(args);
        String topic = cli.get("topic");
        String given = topic + "-in";
        try (Admin admin = Admin.create(cli.client())) {
            admin.createTopics(List.of(new NewTopic(given, 1, (short) 1))).all().get();
        }
        send(given, "first");
        send(given, "large");
        Path state = Files.createTempDirectory("streams");
        // As it comes: the thread, and with it the application, ends.
        var stopped = new CompletableFuture<String>();
        try (KafkaStreams streams = application(given, state, "default")) {
            streams.setUncaughtExceptionHandler(thrown -> {
                Throwable cause = thrown;
                while (cause.getCause() != null) {
                    cause = cause.getCause();
                }
                stopped.complete(cause.toString());
                return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
            });
            streams.start();
            stopped.get(60, TimeUnit.SECONDS);
        }
        String refusal;
        try (KafkaStreams streams = application(given, state, "go-on", "production.exception.handler", GoOn.class.getName())) {
            streams.start();
            refusal = refused.get(60, TimeUnit.SECONDS);
            // Not in one batch with the large one: Java cannot take the two apart when the second has but some bytes.
            send(given, "last");
            Cli.line("refusal", stopped.get().contains("sizegate refused") ? refusal : stopped.get(), "read", read(topic), "after",
                "with a ProductionExceptionHandler that resumes; as it comes the application stops");
        }
    }

    private static void send(String topic, String value) throws Exception {
        try (var producer = new KafkaProducer<>(cli.client(), new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(topic, value)).get();
        }
    }

    private static KafkaStreams application(String given, Path state, String id, Object... more) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(given, Consumed.with(Serdes.String(), Serdes.String()))
            .mapValues(value -> value.equals("large") ? "x".repeat(100_000) : value)
            .to(cli.get("topic"), Produced.with(Serdes.String(), Serdes.String()));
        var properties = cli.client("application.id", cli.get("topic") + "-" + id, "auto.offset.reset", "earliest",
            "state.dir", state, "commit.interval.ms", 100, "replication.factor", 1);
        for (int i = 0; i < more.length; i += 2) {
            properties.put(more[i], more[i + 1]);
        }
        return new KafkaStreams(builder.build(), properties);
    }

    /** From the first of the second application's: the first application may have made one too. */
    private static String read(String topic) {
        var read = new StringJoiner(" ");
        try (var consumer = new KafkaConsumer<>(cli.client(), new StringDeserializer(), new ByteArrayDeserializer())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
            while (!read.toString().endsWith("last") && System.nanoTime() < end) {
                for (var record : consumer.poll(Duration.ofMillis(500))) {
                    String value = new String(record.value(), 0, Math.min(record.value().length, 9));
                    if (!(value.equals("first") && read.toString().equals("first"))) {
                        read.add(value);
                    }
                }
            }
        }
        return read.toString();
    }
}
