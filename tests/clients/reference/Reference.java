// What Kafka itself reads of a batch: java -cp "LIBS/*" Reference.java CORPUS
//
// CORPUS holds batches, each after its length (four bytes, big endian). For each one line of JSON:
//   broker   the log's validation of a produced batch (CRC, then LogValidator, topic compression "producer"): null
//            if it is accepted, else why not
//   walked   [key, value] bytes of each record as the broker's own iterator passes over them; null if it fails
//   reader   why a consumer's iterator fails; null if it does not
//   records  [record, key, value, headers] bytes of each record as a consumer reads it; null if it fails
//   estimate what AbstractRecords estimates for each of those
//
// Kafka moved a few of these classes between releases, hence the reflection.

import java.io.DataInputStream;
import java.io.FileInputStream;
import java.io.BufferedInputStream;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.AbstractRecords;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;

public class Reference {
    public static void main(String[] args) throws Exception {
        StringBuilder out = new StringBuilder();
        try (DataInputStream in = new DataInputStream(new BufferedInputStream(new FileInputStream(args[0])))) {
            while (true) {
                int length = in.read();
                if (length < 0) break;
                length = length << 24 | in.readUnsignedByte() << 16 | in.readUnsignedShort();
                byte[] batch = new byte[length];
                in.readFully(batch);
                out.append(line(batch)).append('\n');
            }
        }
        System.out.print(out);
    }

    static String line(byte[] batch) {
        String broker = failure(() -> validate(batch.clone()));
        StringBuilder walked = new StringBuilder();
        String walk = failure(() -> walk(batch.clone(), walked));
        StringBuilder records = new StringBuilder();
        StringBuilder estimates = new StringBuilder();
        String reader = failure(() -> read(batch.clone(), records, estimates));
        return "{\"broker\":" + broker
            + ",\"walked\":" + (walk.equals("null") ? "[" + walked + "]" : "null")
            + ",\"reader\":" + reader
            + ",\"records\":" + (reader.equals("null") ? "[" + records + "]" : "null")
            + ",\"estimate\":" + (reader.equals("null") ? "[" + estimates + "]" : "null") + "}";
    }

    interface Attempt {
        void run() throws Throwable;
    }

    static String failure(Attempt attempt) {
        try {
            attempt.run();
            return "null";
        } catch (Throwable e) {
            Throwable cause = e;
            while (cause instanceof InvocationTargetException && cause.getCause() != null) cause = cause.getCause();
            String text = cause.getClass().getSimpleName() + ": " + cause.getMessage();
            if (cause.getCause() != null) text += " / " + cause.getCause();
            return "\"" + text.replaceAll("[^ -~]", "?").replace("\\", "/").replace("\"", "'") + "\"";
        }
    }

    static MutableRecordBatch only(MemoryRecords records) {
        Iterator<MutableRecordBatch> batches = records.batches().iterator();
        if (!batches.hasNext()) throw new IllegalStateException("no batch");
        MutableRecordBatch batch = batches.next();
        if (batches.hasNext()) throw new IllegalStateException("more than one batch");
        return batch;
    }

    /** As UnifiedLog does for a produced batch: ensureValid, then LogValidator with the batch's own compression. */
    static void validate(byte[] bytes) throws Throwable {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(bytes));
        MutableRecordBatch batch = only(records);
        batch.ensureValid();
        CompressionType source = batch.compressionType();
        Constructor<?> constructor = LogValidator.class.getConstructor(MemoryRecords.class, TopicPartition.class,
            Time.class, CompressionType.class, Compression.class, boolean.class, byte.class, TimestampType.class,
            long.class, long.class, int.class, AppendOrigin.class);
        Object validator = constructor.newInstance(records, new TopicPartition("t", 0), Time.SYSTEM, source,
            Compression.of(source).build(), false, RecordBatch.MAGIC_VALUE_V2, TimestampType.CREATE_TIME,
            Long.MAX_VALUE, Long.MAX_VALUE, 0, AppendOrigin.CLIENT);
        Method validate = method(LogValidator.class, "validateMessagesAndAssignOffsets", 3);
        Object offset = method(validate.getParameterTypes()[0].getEnclosingClass(), "ofLong", 1).invoke(null, 0L);
        Class<?> recorder = validate.getParameterTypes()[1];
        Object metrics = Proxy.newProxyInstance(recorder.getClassLoader(), new Class<?>[] {recorder},
            (proxy, called, arguments) -> null);
        validate.invoke(validator, offset, metrics, buffers(validate.getParameterTypes()[2]));
    }

    static void walk(byte[] bytes, StringBuilder out) throws Throwable {
        MutableRecordBatch batch = only(MemoryRecords.readableRecords(ByteBuffer.wrap(bytes)));
        for (Record record : iterate(batch, "skipKeyValueIterator")) {
            out.append(out.length() == 0 ? "[" : ",[").append(Math.max(record.keySize(), 0))
                .append(',').append(Math.max(record.valueSize(), 0)).append(']');
        }
    }

    static void read(byte[] bytes, StringBuilder out, StringBuilder estimates) throws Throwable {
        MutableRecordBatch batch = only(MemoryRecords.readableRecords(ByteBuffer.wrap(bytes)));
        for (Record record : iterate(batch, "streamingIterator")) {
            long headers = 0;
            for (Header header : record.headers()) {
                headers += header.key().getBytes(java.nio.charset.StandardCharsets.UTF_8).length;
                headers += header.value() == null ? 0 : header.value().length;
            }
            out.append(out.length() == 0 ? "[" : ",[").append(record.sizeInBytes())
                .append(',').append(Math.max(record.keySize(), 0))
                .append(',').append(Math.max(record.valueSize(), 0)).append(',').append(headers).append(']');
            estimates.append(estimates.length() == 0 ? "" : ",").append(AbstractRecords.estimateSizeInBytesUpperBound(
                RecordBatch.MAGIC_VALUE_V2, CompressionType.NONE, record.key(), record.value(), record.headers()));
        }
    }

    /** The iterator's records; a failing one fails here, not in the caller's loop. */
    static List<Record> iterate(MutableRecordBatch batch, String which) throws Throwable {
        Method method = null;
        for (Method candidate : MutableRecordBatch.class.getMethods())
            if (candidate.getName().equals(which) && candidate.getParameterCount() == 1) method = candidate;
        Iterator<?> iterator = (Iterator<?>) method.invoke(batch, buffers(method.getParameterTypes()[0]));
        List<Record> records = new ArrayList<>();
        while (iterator.hasNext()) records.add((Record) iterator.next());
        return records;
    }

    static Object buffers(Class<?> supplier) throws Exception {
        return supplier.getField("NO_CACHING").get(null);
    }

    static Method method(Class<?> type, String name, int parameters) {
        for (Method method : type.getMethods())
            if (method.getName().equals(name) && method.getParameterCount() == parameters) return method;
        throw new IllegalStateException(type + "." + name);
    }
}
