import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Produces numbered records under load with an idempotent producer, over brokers that come and go.
 *
 * <p>{@code bootstrap= topic= partitions=3 records=20000 [bytes=1000] [per_second=4000] [hold_at= hold=]}. A value
 * begins with its number and a space. Record {@code hold_at} waits for the file {@code hold}: then there is load left
 * whatever else takes how long. One line with {@code started} when the first record is acknowledged, one with
 * {@code progress} each thousand, then {@code acked} (numbers), {@code failed} (number and why) and
 * {@code reauthenticated}: how often connections authenticated anew.
 */
public final class IdempotentLoad {
    public static void main(String[] args) throws Exception {
        Cli cli = new Cli(args);
        int records = cli.getInt("records", 20000);
        int bytes = cli.getInt("bytes", 1000);
        int partitions = cli.getInt("partitions", 3);
        int holdAt = cli.getInt("hold_at", -1);
        double reauthenticated;
        long nanosEach = 1_000_000_000L / cli.getInt("per_second", 4000);
        boolean[] acked = new boolean[records];
        AtomicInteger count = new AtomicInteger();
        java.util.List<Object> failed = java.util.Collections.synchronizedList(new java.util.ArrayList<>());
        var properties = cli.client("acks", "all", "enable.idempotence", true, "linger.ms", 5, "delivery.timeout.ms", 120000,
            "request.timeout.ms", 10000, "metadata.max.age.ms", 5000, "reconnect.backoff.max.ms", 500);
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            long start = System.nanoTime();
            for (int i = 0; i < records; i++) {
                while (i == holdAt && !java.nio.file.Files.exists(java.nio.file.Path.of(cli.get("hold")))) {
                    Thread.sleep(20);
                }
                long due = start + i * nanosEach;
                long now = System.nanoTime();
                if (due > now) {
                    Thread.sleep((due - now) / 1_000_000, (int) ((due - now) % 1_000_000));
                }
                int number = i;
                byte[] head = (number + " ").getBytes(StandardCharsets.UTF_8);
                byte[] value = java.util.Arrays.copyOf(head, Math.max(bytes, head.length));
                producer.send(new ProducerRecord<>(cli.get("topic"), number % partitions, null, value), (metadata, error) -> {
                    if (error == null) {
                        acked[number] = true;
                        int now2 = count.incrementAndGet();
                        if (now2 == 1) {
                            Cli.line("started", true);
                        } else if (now2 % 1000 == 0) {
                            Cli.line("progress", now2);
                        }
                    } else {
                        failed.add(java.util.Map.of("number", number, "exception", error.getClass().getSimpleName(),
                            "text", String.valueOf(error.getMessage())));
                    }
                });
            }
            producer.flush();
            reauthenticated = producer.metrics().values().stream()
                .filter(metric -> metric.metricName().name().equals("successful-reauthentication-total"))
                .mapToDouble(metric -> (Double) metric.metricValue()).sum();
        }
        var numbers = new java.util.ArrayList<Object>();
        for (int i = 0; i < records; i++) {
            if (acked[i]) {
                numbers.add(i);
            }
        }
        Cli.line("acked", numbers, "failed", failed, "reauthenticated", reauthenticated);
    }
}
