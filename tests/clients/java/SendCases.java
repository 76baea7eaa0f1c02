import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Many cases in one process: each is a record, or a batch of records alike, with the client's settings for it.
 *
 * <p>{@code bootstrap= case.0=TOPIC|VALUE|KEY|HEADERS|RECORDS|CONTENT|NAME=VALUE,NAME=VALUE case.1=…}: VALUE and KEY are
 * bytes (KEY may be empty: null), HEADERS is {@code COUNTxNAME:VALUE} bytes or empty, CONTENT is random, hex or a. Cases
 * with the same settings share a producer. Of a case of many records all are sent before any is waited for, and it is
 * "ok" if all are. One JSON line a case; {@code wire_bytes} is what the producer itself counts as sent, 0 where its own
 * limit refused.
 */
public final class SendCases {
    private static final Map<String, KafkaProducer<byte[], byte[]>> PRODUCERS = new LinkedHashMap<>();

    public static void main(String[] args) throws Exception {
        Cli cli = new Cli(args);
        for (int at = 0; cli.get("case." + at, null) != null; at++) {
            run(cli, at, cli.get("case." + at).split("\\|", -1));
        }
        PRODUCERS.values().forEach(KafkaProducer::close);
    }

    private static void run(Cli cli, int at, String[] parts) throws Exception {
        String topic = parts[0];
        int records = Integer.parseInt(parts[4]);
        KafkaProducer<byte[], byte[]> producer = PRODUCERS.computeIfAbsent(parts[6], settings -> open(cli, settings));
        producer.partitionsFor(topic);
        double before = wireBytes(producer, topic);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int i = 0; i < records; i++) {
            byte[] value = Cli.value(parts[5], Integer.parseInt(parts[1]), at);
            byte[] key = parts[2].isEmpty() ? null : Cli.value("a", Integer.parseInt(parts[2]), 0);
            sent.add(producer.send(new ProducerRecord<>(topic, 0, 1_700_000_000_000L, key, value, headers(parts[3]))));
        }
        producer.flush();
        ExecutionException failed = null;
        for (Future<RecordMetadata> future : sent) {
            try {
                future.get();
            } catch (ExecutionException e) {
                failed = e;
            }
        }
        double wire = wireBytes(producer, topic) - before;
        if (failed == null) {
            Cli.line("case", at, "ok", true, "wire_bytes", wire);
        } else {
            Cli.line(Cli.failure(failed, "case", at, "wire_bytes", wire));
        }
    }

    private static KafkaProducer<byte[], byte[]> open(Cli cli, String settings) {
        Properties properties = cli.client("linger.ms", 0, "delivery.timeout.ms", 60000);
        for (String setting : settings.isEmpty() ? new String[0] : settings.split(",")) {
            int at = setting.indexOf('=');
            properties.put(setting.substring(0, at), setting.substring(at + 1));
        }
        return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static Headers headers(String shape) {
        RecordHeaders headers = new RecordHeaders();
        if (!shape.isEmpty()) {
            String[] numbers = shape.split("[x:]");
            for (int i = 0; i < Integer.parseInt(numbers[0]); i++) {
                byte[] name = Cli.value("a", Integer.parseInt(numbers[1]), 0);
                headers.add(new String(name, StandardCharsets.US_ASCII), Cli.value("a", Integer.parseInt(numbers[2]), 0));
            }
        }
        return headers;
    }

    private static double wireBytes(KafkaProducer<byte[], byte[]> producer, String topic) {
        return producer.metrics().values().stream()
            .filter(metric -> metric.metricName().group().equals("producer-topic-metrics"))
            .filter(metric -> metric.metricName().name().equals("byte-total"))
            .filter(metric -> topic.equals(metric.metricName().tags().get("topic")))
            .mapToDouble(metric -> (Double) metric.metricValue()).sum();
    }
}
