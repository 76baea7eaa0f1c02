import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Climbs the sizes at which one gate after the other says no, with a real producer, and shows who refused what.
 *
 * <p>{@code bootstrap= [metrics=http://HOST:PORT/metrics] [format=table|json] [columns=100]}. It creates its
 * topics through the same address: {@code ladder.plain} (the broker's default limit), {@code ladder.notes},
 * {@code ladder.unguarded} and {@code ladder.claims} (for rules of the demo's) and {@code ladder.large}
 * ({@code max.message.bytes} of its own).
 */
public final class SizeLadder {
    private static final String PLAIN = "ladder.plain";
    private static final String NOTES = "ladder.notes";
    private static final String LARGE = "ladder.large";
    private static final String UNGUARDED = "ladder.unguarded";
    private static final String CLAIMS = "ladder.claims";
    private static final int ONE_MIB = 1 << 20;
    private static final int TWO_MIB = 2 << 20;
    private static final int EIGHT_MIB = 8 << 20;

    private record Rung(String topic, int valueBytes, String content, String codec, int maxRequestSize, String why) {}

    /** One heading and the rungs below it. */
    private record Flight(String heading, List<Rung> rungs) {}

    private static final List<Flight> LADDER = List.of(
        new Flight(PLAIN + ": no rule, the topic inherits the broker's 1,048,588 bytes a batch", List.of(
            new Rung(PLAIN, 1_000, "random", "none", ONE_MIB, "a small record"),
            new Rung(PLAIN, 1_048_489, "random", "none", ONE_MIB, "the largest that a default producer sends"),
            new Rung(PLAIN, 1_048_490, "random", "none", ONE_MIB, "one byte more: its own max.request.size says no"),
            new Rung(PLAIN, 1_048_516, "random", "none", EIGHT_MIB, "max.request.size 8 MiB: the largest the topic takes"),
            new Rung(PLAIN, 1_048_517, "random", "none", EIGHT_MIB, "one byte more"),
            new Rung(PLAIN, 2_000_000, "random", "none", EIGHT_MIB, "far more"),
            new Rung(PLAIN, 2_000_000, "random", "lz4", EIGHT_MIB, "noise does not shrink, whatever the codec"),
            new Rung(PLAIN, 2_000_000, "a", "gzip", EIGHT_MIB, "a value that does"),
            new Rung(PLAIN, 2_000_000, "a", "zstd", EIGHT_MIB, "and with another codec"),
            new Rung(PLAIN, 2_000_000, "a", "zstd", ONE_MIB, "but a default producer counts before it compresses"))),
        new Flight(NOTES + ": rule \"notes\", no record above 64 KiB", List.of(
            new Rung(NOTES, 65_000, "random", "none", ONE_MIB, "below the rule's limit"),
            new Rung(NOTES, 70_000, "random", "none", ONE_MIB, "above it"),
            new Rung(NOTES, 70_000, "a", "lz4", ONE_MIB, "above it, though tiny on the wire"))),
        new Flight(LARGE + ": no rule, the topic's own max.message.bytes is 2 MiB", List.of(
            new Rung(LARGE, 2_000_000, "random", "none", EIGHT_MIB, "what was too large above"),
            new Rung(LARGE, 2_097_079, "random", "none", EIGHT_MIB, "one byte above this topic's limit"))),
        new Flight(UNGUARDED + ": rule \"unguarded\" leaves batches to the broker", List.of(
            new Rung(UNGUARDED, 2_000_000, "random", "none", EIGHT_MIB, "the broker says no, sizegate adds why"))),
        new Flight(CLAIMS + ": rule \"claims\" puts large values into an object store, a ticket travels", List.of(
            new Rung(CLAIMS, TWO_MIB, "random", "none", EIGHT_MIB, "taken, whatever the topic's limit"))));

    private record Result(String refusedBy, double wireBytes, String exception, String text) {}

    public static void main(String[] args) throws Exception {
        Cli cli = new Cli(args);
        boolean table = cli.get("format", "table").equals("table");
        Print print = new Print(cli.getInt("columns", 100));
        String metrics = cli.get("metrics", null);

        try (Admin admin = Admin.create(cli.client())) {
            create(admin, PLAIN, Map.of());
            create(admin, NOTES, Map.of());
            create(admin, LARGE, Map.of("max.message.bytes", "2097152"));
            create(admin, UNGUARDED, Map.of());
            create(admin, CLAIMS, Map.of());
            create(admin, CLAIMS + ".claim.missing", Map.of());
        }
        Map<String, Double> before = metrics == null ? Map.of() : scrape(metrics);
        if (table) {
            print.head();
        }
        for (Flight flight : LADDER) {
            if (table) {
                print.heading(flight.heading());
            }
            for (Rung rung : flight.rungs()) {
                Result result = climb(cli, rung);
                if (table) {
                    print.row(rung, result);
                } else {
                    Cli.line("topic", rung.topic(), "value_bytes", rung.valueBytes(), "content", rung.content(),
                        "codec", rung.codec(), "max_request_size", rung.maxRequestSize(), "wire_bytes",
                        result.wireBytes(), "refused_by", result.refusedBy(), "exception", result.exception(),
                        "text", result.text());
                }
            }
        }
        if (metrics != null && table) {
            print.metrics(before, scrape(metrics));
        }
    }

    private static void create(Admin admin, String topic, Map<String, String> configs) throws Exception {
        try {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1).configs(configs))).all().get();
        } catch (ExecutionException e) {
            if (!(e.getCause() instanceof TopicExistsException)) {
                throw e;
            }
        }
    }

    private static Result climb(Cli cli, Rung rung) throws Exception {
        var properties = cli.client("compression.type", rung.codec(), "max.request.size", rung.maxRequestSize(),
            "linger.ms", 0, "delivery.timeout.ms", 60000);
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            byte[] value = Cli.value(rung.content(), rung.valueBytes(), rung.valueBytes());
            Future<RecordMetadata> sent = producer.send(new ProducerRecord<>(rung.topic(), 0, null, value));
            try {
                sent.get();
                return new Result("nobody", wireBytes(producer), null, null);
            } catch (ExecutionException e) {
                Throwable cause = e.getCause();
                double wire = wireBytes(producer);
                String text = String.valueOf(cause.getMessage());
                // Nothing left the client: its own refusal.
                String who = wire == 0 ? "the client" : text.startsWith("sizegate refused") ? "sizegate" : "the broker";
                return new Result(who, wire, cause.getClass().getSimpleName(), text);
            }
        }
    }

    /** What the producer itself counted as sent: whole batches, compressed, their headers included. */
    private static double wireBytes(KafkaProducer<byte[], byte[]> producer) {
        return producer.metrics().values().stream()
            .filter(metric -> metric.metricName().group().equals("producer-topic-metrics"))
            .filter(metric -> metric.metricName().name().equals("byte-total"))
            .mapToDouble(metric -> (Double) metric.metricValue()).sum();
    }

    /** All samples of a Prometheus page. */
    private static Map<String, Double> scrape(String address) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(address)).build();
        String body = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body();
        Map<String, Double> samples = new TreeMap<>();
        for (String line : body.split("\n")) {
            int end = line.lastIndexOf(' ');
            if (end > 0 && !line.startsWith("#")) {
                samples.put(line.substring(0, end), Double.valueOf(line.substring(end + 1)));
            }
        }
        return samples;
    }

    /** For a person at a terminal. */
    private record Print(int columns) {
        private static final List<String> OF_GATES = List.of("sizegate_violations_total", "sizegate_produce_batches_total",
            "sizegate_near_limit_total", "sizegate_broker_refusals_total", "sizegate_frames_refused_total",
            "sizegate_malformed_total", "sizegate_inspection_total");

        void head() {
            System.out.printf("%13s  %-7s %-6s %12s  %-11s %s%n", "value bytes", "content", "codec", "wire bytes",
                "refused by", "");
        }

        void heading(String text) {
            System.out.printf("%n%s%n", text);
        }

        void row(Rung rung, Result result) {
            System.out.printf("%,13d  %-7s %-6s %12s  %-11s %s%n", rung.valueBytes(),
                rung.content().equals("a") ? "AAAA…" : rung.content(), rung.codec(),
                result.wireBytes() == 0 ? "none sent" : String.format("%,.0f", result.wireBytes()), result.refusedBy(),
                rung.why());
            if (result.text() != null) {
                wrapped("    " + result.exception() + ": " + result.text(), "      ");
            }
        }

        void metrics(Map<String, Double> before, Map<String, Double> after) {
            System.out.printf("%nWhat moved at the gates (/metrics, before and after):%n");
            boolean any = false;
            for (Map.Entry<String, Double> sample : after.entrySet()) {
                double moved = sample.getValue() - before.getOrDefault(sample.getKey(), 0.0);
                String name = sample.getKey().replaceAll("\\{.*", "");
                if (moved != 0 && OF_GATES.contains(name)) {
                    System.out.printf("  %+6.0f  %s%n", moved, sample.getKey());
                    any = true;
                }
            }
            if (!any) {
                System.out.println("  nothing");
            }
        }

        /** Breaks at spaces; the first line as it is, the others indented. */
        private void wrapped(String text, String indent) {
            List<String> lines = new ArrayList<>();
            StringBuilder line = new StringBuilder();
            for (String word : text.split("(?<=\\S) ")) {
                if (line.length() + 1 + word.length() > columns && !line.isEmpty()) {
                    lines.add(line.toString());
                    line = new StringBuilder(indent);
                    line.append(word);
                } else {
                    line.append(line.isEmpty() ? "" : " ").append(word);
                }
            }
            lines.add(line.toString());
            lines.forEach(System.out::println);
        }
    }
}
