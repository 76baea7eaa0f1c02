import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Sends records as an application does, for what their timestamps tell.
 *
 * <p>{@code bootstrap= topic= [shift_ms=0] [rounds=1] [small=0] [large=0] [large_bytes=1048576] [large_shift_ms=0]
 * [mixed=0] [seed=1]}: the clock of the records is off by {@code shift_ms}. In each round first {@code small} records of
 * 1,000 bytes, fifty at once; then {@code large} records, each waited for, one line each, stamped {@code large_shift_ms}
 * off besides. Then {@code mixed} records of mixed sizes over all partitions, with a pause here and there. At the end one
 * line with what was acknowledged.
 */
public final class TimedLoad {
    public static void main(String[] args) throws Exception {
        Cli cli = new Cli(args);
        long shift = cli.getInt("shift_ms", 0);
        String topic = cli.get("topic");
        int acknowledged = 0;
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                cli.client("max.request.size", 16 << 20, "delivery.timeout.ms", 120000),
                new ByteArraySerializer(), new ByteArraySerializer())) {
            int partitions = producer.partitionsFor(topic).size();
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            byte[] small = Cli.value("random", 1000, 0);
            long largeShift = shift + cli.getInt("large_shift_ms", 0);
            for (int round = 0; round < cli.getInt("rounds", 1); round++) {
                for (int i = 0; i < cli.getInt("small", 0); i++) {
                    sent.add(producer.send(record(topic, 0, shift, small)));
                    if (i % 50 == 49) {
                        producer.flush();
                    }
                }
                producer.flush();
                for (int i = 0; i < cli.getInt("large", 0); i++) {
                    byte[] value = Cli.value("random", cli.getInt("large_bytes", 1 << 20), i);
                    long began = System.nanoTime();
                    producer.send(record(topic, 0, largeShift, value)).get();
                    acknowledged++;
                    Cli.line("large", i, "ms", (System.nanoTime() - began) / 1e6);
                }
            }
            Random random = new Random(cli.getInt("seed", 1));
            for (int i = 0; i < cli.getInt("mixed", 0); i++) {
                int kind = random.nextInt(100);
                int bytes = kind < 60 ? 50 + random.nextInt(2_000)
                    : kind < 99 ? 17_000 + random.nextInt(20_000) : 200_000 + random.nextInt(800_000);
                sent.add(producer.send(record(topic, random.nextInt(partitions), shift, new byte[bytes])));
                if (random.nextInt(200) == 0) {
                    Thread.sleep(random.nextInt(40));
                }
            }
            producer.flush();
            for (Future<RecordMetadata> future : sent) {
                future.get();
                acknowledged++;
            }
        }
        Cli.line("acknowledged", acknowledged);
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, int partition, long shift, byte[] value) {
        return new ProducerRecord<>(topic, partition, System.currentTimeMillis() + shift, null, value);
    }
}
