import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Sends records of given value sizes and says what became of each.
 *
 * <p>{@code bootstrap= topic= values=100,1000,100 [content=random|a] [partition=0] [together=true] [then=100]}:
 * together sends all before it waits, with a linger (ended by a flush) and a batch size that put them into one
 * batch; otherwise each is waited for. One line a record; then one with the producer's splits of batches. {@code then} sends more records
 * with the same producer afterwards, each waited for: whether it still works.
 */
public final class SendSizes {
    public static void main(String[] args) throws Exception {
        Cli cli = new Cli(args);
        boolean together = Boolean.parseBoolean(cli.get("together", "false"));
        String[] sizes = cli.get("values").split(",");
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        List<String> lines = new ArrayList<>();
        Object[] defaults = together
            ? new Object[] {"linger.ms", 20_000, "batch.size", 1 << 20, "max.request.size", 16 << 20, "delivery.timeout.ms", 60000}
            : new Object[] {"linger.ms", 0, "delivery.timeout.ms", 60000};
        long start = System.nanoTime();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(cli.client(defaults), new ByteArraySerializer(), new ByteArraySerializer())) {
            // Metadata first: the linger of a batch begins when its first record is appended.
            producer.partitionsFor(cli.get("topic"));
            for (int i = 0; i < sizes.length; i++) {
                byte[] value = Cli.value(cli.get("content", "random"), Integer.parseInt(sizes[i]), i);
                long began = System.nanoTime();
                Future<RecordMetadata> future =
                    producer.send(new ProducerRecord<>(cli.get("topic"), cli.getInt("partition", 0), null, value));
                // The client's own refusal fails at once; nothing that travels does.
                boolean local = future.isDone() && failed(future);
                if (together) {
                    sent.add(future);
                } else {
                    report(i, sizes[i], future, local, began);
                }
            }
            if (together) {
                producer.flush();
                for (int i = 0; i < sizes.length; i++) {
                    report(i, sizes[i], sent.get(i), false, start);
                }
            }
            double splits = producer.metrics().values().stream()
                .filter(metric -> metric.metricName().name().equals("batch-split-total"))
                .filter(metric -> metric.metricName().group().equals("producer-metrics"))
                .mapToDouble(metric -> (Double) metric.metricValue()).sum();
            Cli.line("splits", splits, "seconds", (System.nanoTime() - start) / 1e9);
            String[] later = cli.get("then", "").isEmpty() ? new String[0] : cli.get("then").split(",");
            for (int i = 0; i < later.length; i++) {
                byte[] value = Cli.value(cli.get("content", "random"), Integer.parseInt(later[i]), sizes.length + i);
                long began = System.nanoTime();
                Future<RecordMetadata> future =
                    producer.send(new ProducerRecord<>(cli.get("topic"), cli.getInt("partition", 0), null, value));
                producer.flush();
                report(sizes.length + i, later[i], future, false, began);
            }
        }
    }

    private static boolean failed(Future<RecordMetadata> future) throws InterruptedException {
        try {
            future.get();
            return false;
        } catch (java.util.concurrent.ExecutionException e) {
            return true;
        }
    }

    private static void report(int index, String bytes, Future<RecordMetadata> future, boolean local, long began)
            throws InterruptedException {
        try {
            RecordMetadata metadata = future.get();
            Cli.line("record", index, "value_bytes", Integer.parseInt(bytes), "ok", true, "offset",
                metadata.hasOffset() ? metadata.offset() : -1, "ms", (System.nanoTime() - began) / 1e6);
        } catch (java.util.concurrent.ExecutionException e) {
            Cli.line(Cli.failure(e, "record", index, "value_bytes", Integer.parseInt(bytes), "local", local));
        }
    }
}
