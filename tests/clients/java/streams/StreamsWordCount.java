import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * The word count, exactly once, with a repartition topic and a change log.
 *
 * <p>{@code bootstrap= input= output= state= [lines=300] [pad=0]}. With {@code pad} each line has a
 * word of so many letters beside those that count. It ends when the counts that are read back (read_committed)
 * are complete: one line with {@code counts}.
 */
public final class StreamsWordCount {
    private static final String[] WORDS = {"batch", "record", "gate", "limit", "ticket"};

    public static void main(String[] args) throws Exception {
        Cli cli = new Cli(args);
        int lines = cli.getInt("lines", 300);
        int pad = cli.getInt("pad", 0);
        Map<String, Long> expected = new TreeMap<>();
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(cli.client(), new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < lines; i++) {
                String[] words = {WORDS[i % 5], WORDS[i % 3], WORDS[i % 2]};
                Arrays.stream(words).forEach(word -> expected.merge(word, 1L, Long::sum));
                String filler = pad == 0 ? "" : " " + "x".repeat(pad - 3) + String.format("%03d", i);
                producer.send(new ProducerRecord<>(cli.get("input"), String.join(" ", words) + filler));
            }
        }

        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(cli.get("input"), Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> Arrays.stream(line.split(" ")).filter(word -> word.length() < 100).toList())
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.with(Serdes.String(), Serdes.Long()))
            .toStream()
            .to(cli.get("output"), Produced.with(Serdes.String(), Serdes.Long()));
        var properties = cli.client("application.id", "words-" + UUID.randomUUID(), "processing.guarantee",
            "exactly_once_v2", "commit.interval.ms", 100, "auto.offset.reset", "earliest", "state.dir", cli.get("state"),
            "num.stream.threads", 1, "replication.factor", 1);

        Map<String, Long> counts = new HashMap<>();
        try (KafkaStreams streams = new KafkaStreams(builder.build(), properties);
                KafkaConsumer<String, Long> consumer = new KafkaConsumer<>(
                    cli.client("group.id", "read-" + UUID.randomUUID(), "isolation.level", "read_committed",
                        "auto.offset.reset", "earliest"), new StringDeserializer(), new LongDeserializer())) {
            streams.setUncaughtExceptionHandler(thrown -> {
                thrown.printStackTrace();
                return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse
                    .SHUTDOWN_CLIENT;
            });
            streams.start();
            consumer.subscribe(List.of(cli.get("output")));
            long end = System.nanoTime() + 150_000_000_000L;
            while (!counts.equals(expected) && System.nanoTime() < end && streams.state() != KafkaStreams.State.ERROR) {
                for (ConsumerRecord<String, Long> record : consumer.poll(Duration.ofMillis(200))) {
                    counts.put(record.key(), record.value());
                }
            }
            streams.close(Duration.ofSeconds(30));
        }
        Cli.line("counts", new TreeMap<>(counts), "expected", expected);
        if (!counts.equals(expected)) {
            System.exit(1);
        }
    }
}
