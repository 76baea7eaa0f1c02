import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.SerializationException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Deserializer;

/**
 * Consumers that come back to a large record because their application fails at it, and consumers that come back for
 * other reasons.
 *
 * <p>{@code bootstrap= topic= modes=seek,restart,… times=4 records= [largest=100000]}, a line {@code did} for each mode.
 * The client id is the mode's name, the group that and the topic's. Failing: {@code seek} (to the record), {@code rewind}
 * (to the first record of the poll), {@code restart} (each record is committed once it is handled), {@code fresh} (nothing
 * ever is), {@code deserialize} (and restarted), {@code slow} (takes longer over it than {@code max.poll.interval.ms}).
 * Unseen: {@code keeps} (cannot deserialise it, and polls on). Innocent: {@code groups} (start together, under one client id),
 * {@code mirrors} (the same without groups, twice), {@code rebalances} (members come and go), {@code beginning}
 * ({@code seekToBeginning}), {@code table} (a new consumer without a group reads all from the beginning).
 */
public final class Returning {
    private static Cli cli;
    private static String topic;
    private static TopicPartition partition;
    private static int largest;
    private static int records;
    private static int times;

    public static void main(String[] args) throws Exception {
        cli = new Cli(args);
        topic = cli.get("topic");
        partition = new TopicPartition(topic, 0);
        largest = cli.getInt("largest", 100_000);
        records = cli.getInt("records", 3);
        times = cli.getInt("times", 4);
        for (String mode : cli.get("modes").split(",")) {
            int failed = switch (mode) {
                case "seek", "rewind" -> seekBack(mode);
                case "restart", "fresh" -> restart(mode);
                case "deserialize" -> deserialize(mode);
                case "groups" -> together(mode, true);
                case "mirrors" -> together(mode, false) + together(mode, false);
                case "slow" -> slow(mode);
                case "keeps" -> keeps(mode);
                case "rebalances" -> rebalances(mode);
                case "beginning" -> beginning(mode);
                case "table" -> table(mode);
                default -> throw new IllegalArgumentException(mode);
            };
            Cli.line("did", mode, "failed", failed);
        }
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String mode, String group) {
        return consumer(mode, group, new ByteArrayDeserializer());
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String mode, String group, Deserializer<byte[]> values) {
        Properties properties = cli.client("client.id", mode, "enable.auto.commit", false, "auto.offset.reset", "earliest");
        if (group != null) {
            properties.put("group.id", topic + "-" + group);
        } else {
            properties.remove("group.protocol");
        }
        // Unknown there: the broker says it.
        if ("consumer".equals(properties.getProperty("group.protocol"))) {
            properties.remove("heartbeat.interval.ms");
        }
        return new KafkaConsumer<>(properties, new ByteArrayDeserializer(), values);
    }

    private static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer) {
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(120);
        while (System.nanoTime() < until) {
            ConsumerRecords<byte[], byte[]> polled = consumer.poll(Duration.ofMillis(200));
            if (!polled.isEmpty()) {
                return polled;
            }
        }
        throw new IllegalStateException("nothing comes");
    }

    private static void handle(ConsumerRecord<byte[], byte[]> record) {
        if (record.value().length > largest) {
            throw new IllegalStateException("a value of " + record.value().length + " bytes");
        }
    }

    private static void commit(KafkaConsumer<byte[], byte[]> consumer, long offset) {
        consumer.commitSync(Map.of(partition, new OffsetAndMetadata(offset)));
    }

    private static int seekBack(String mode) {
        int failed = 0;
        try (var consumer = consumer(mode, mode)) {
            consumer.subscribe(List.of(topic));
            while (failed < times) {
                var polled = poll(consumer);
                for (var record : polled) {
                    try {
                        handle(record);
                    } catch (IllegalStateException e) {
                        failed++;
                        awaitNextFetch(consumer);
                        var first = polled.records(partition).get(0);
                        consumer.seek(partition, mode.equals("seek") ? record.offset() : first.offset());
                        break;
                    }
                }
            }
        }
        return failed;
    }

    /**
     * A handler takes its time. With the newer protocol another thread fetches ahead: one that seeks back at once may be
     * before it, and then nothing tells that the records were handed on. Until that fetch has come back, with nothing.
     */
    private static void awaitNextFetch(KafkaConsumer<byte[], byte[]> consumer) {
        if (!"consumer".equals(cli.get("p.group.protocol", "classic"))) {
            return;
        }
        double before = fetches(consumer);
        // Where it was here before that look: longer than it waits at the broker.
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(3);
        while (fetches(consumer) == before && System.nanoTime() < until) {
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(5));
        }
    }

    private static double fetches(KafkaConsumer<byte[], byte[]> consumer) {
        return consumer.metrics().entrySet().stream()
                .filter(metric -> metric.getKey().name().equals("fetch-total") && metric.getKey().tags().size() == 1)
                .mapToDouble(metric -> (Double) metric.getValue().metricValue())
                .sum();
    }

    private static int restart(String mode) {
        int failed = 0;
        while (failed < times) {
            try (var consumer = consumer(mode, mode)) {
                consumer.subscribe(List.of(topic));
                while (true) {
                    for (var record : poll(consumer)) {
                        handle(record);
                        if (mode.equals("restart")) {
                            commit(consumer, record.offset() + 1);
                        }
                    }
                }
            } catch (IllegalStateException e) {
                failed++;
            }
        }
        return failed;
    }

    private static int deserialize(String mode) {
        int failed = 0;
        Deserializer<byte[]> values = (name, bytes) -> {
            if (bytes.length > largest) {
                throw new SerializationException(bytes.length + " bytes");
            }
            return bytes;
        };
        while (failed < times) {
            try (var consumer = consumer(mode, mode, values)) {
                consumer.subscribe(List.of(topic));
                while (true) {
                    for (var record : poll(consumer)) {
                        commit(consumer, record.offset() + 1);
                    }
                }
            } catch (SerializationException e) {
                failed++;
            }
        }
        return failed;
    }

    private static int slow(String mode) throws InterruptedException {
        int failed = 0;
        try (var consumer = consumer(mode, mode)) {
            consumer.subscribe(List.of(topic));
            while (failed < times) {
                for (var record : poll(consumer)) {
                    if (record.value().length <= largest) {
                        continue;
                    }
                    Thread.sleep(2 * Long.parseLong(cli.get("p.max.poll.interval.ms")));
                    try {
                        commit(consumer, record.offset() + 1);
                    } catch (CommitFailedException e) {
                        failed++;
                    }
                    break;
                }
            }
        }
        return failed;
    }

    private static int keeps(String mode) {
        int failed = 0;
        Deserializer<byte[]> values = (name, bytes) -> {
            if (bytes.length > largest) {
                throw new SerializationException(bytes.length + " bytes");
            }
            return bytes;
        };
        try (var consumer = consumer(mode, mode, values)) {
            consumer.subscribe(List.of(topic));
            while (failed < 20 * times) {
                try {
                    consumer.poll(Duration.ofMillis(50));
                } catch (SerializationException e) {
                    failed++;
                }
            }
        }
        return failed;
    }

    /** Reads everything, then once more beyond it. */
    private static void readAll(KafkaConsumer<byte[], byte[]> consumer) {
        int read = 0;
        while (read < records) {
            read += poll(consumer).count();
        }
        consumer.poll(Duration.ofMillis(100));
    }

    private static int together(String mode, boolean withGroups) throws InterruptedException {
        CountDownLatch ready = new CountDownLatch(times);
        Thread[] threads = new Thread[times];
        for (int i = 0; i < times; i++) {
            String group = withGroups ? mode + "-" + i : null;
            threads[i] = new Thread(() -> {
                try (var consumer = consumer(mode, group)) {
                    if (withGroups) {
                        consumer.subscribe(List.of(topic));
                    } else {
                        consumer.assign(List.of(partition));
                        consumer.seek(partition, 0);
                    }
                    ready.countDown();
                    ready.await();
                    readAll(consumer);
                } catch (InterruptedException e) {
                    throw new IllegalStateException(e);
                }
            });
            threads[i].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        return 0;
    }

    /** One member reads; others come and go meanwhile and read nothing. Nobody commits, so it begins again each time. */
    private static int rebalances(String mode) {
        try (var first = consumer(mode, mode)) {
            first.subscribe(List.of(topic));
            readAll(first);
            for (int i = 0; i < times; i++) {
                int before = first.groupMetadata().generationId();
                try (var other = consumer(mode, mode)) {
                    other.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                        @Override
                        public void onPartitionsAssigned(Collection<TopicPartition> assigned) {
                            other.pause(assigned);
                        }

                        @Override
                        public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
                        }
                    });
                    settle(before, first, other);
                    before = first.groupMetadata().generationId();
                }
                settle(before, first, first);
            }
        }
        return 0;
    }

    /** Polls until the first has another generation and one of them the partition. */
    private static void settle(int before, KafkaConsumer<?, ?> first, KafkaConsumer<?, ?> other) {
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(120);
        while (first.groupMetadata().generationId() == before
                || first.assignment().isEmpty() && other.assignment().isEmpty()) {
            if (System.nanoTime() > until) {
                throw new IllegalStateException("no rebalance");
            }
            other.poll(Duration.ofMillis(50));
            first.poll(Duration.ofMillis(50));
        }
        for (int i = 0; i < 4; i++) {
            other.poll(Duration.ofMillis(50));
            first.poll(Duration.ofMillis(50));
        }
    }

    private static int beginning(String mode) {
        try (var consumer = consumer(mode, mode)) {
            consumer.subscribe(List.of(topic));
            for (int i = 0; i < times; i++) {
                readAll(consumer);
                consumer.seekToBeginning(List.of(partition));
            }
        }
        return 0;
    }

    private static int table(String mode) {
        for (int i = 0; i < times; i++) {
            try (var consumer = consumer(mode, null)) {
                consumer.assign(List.of(partition));
                consumer.seekToBeginning(List.of(partition));
                readAll(consumer);
            }
        }
        return 0;
    }
}
