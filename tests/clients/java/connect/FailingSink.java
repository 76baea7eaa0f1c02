import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.sink.SinkConnector;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTask;

/**
 * A sink of Kafka Connect that fails at large records: {@code way=fail} ends its task, which somebody restarts;
 * {@code way=rewind} goes back to the record ({@code SinkTaskContext.offset}), as sinks that write files do.
 */
public final class FailingSink extends SinkConnector {
    private Map<String, String> settings;

    @Override
    public void start(Map<String, String> settings) {
        this.settings = settings;
    }

    @Override
    public Class<? extends Task> taskClass() {
        return FailingTask.class;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int most) {
        return List.of(settings);
    }

    @Override
    public void stop() {
    }

    @Override
    public ConfigDef config() {
        return new ConfigDef();
    }

    @Override
    public String version() {
        return "1";
    }

    public static final class FailingTask extends SinkTask {
        private static final int LARGEST = 100_000;
        private boolean rewinds;

        @Override
        public void start(Map<String, String> settings) {
            rewinds = settings.get("way").equals("rewind");
        }

        @Override
        public void put(Collection<SinkRecord> records) {
            for (SinkRecord record : records) {
                if (((byte[]) record.value()).length <= LARGEST) {
                    continue;
                }
                if (!rewinds) {
                    throw new ConnectException("a value of more than " + LARGEST + " bytes");
                }
                Map<TopicPartition, Long> back = new HashMap<>();
                back.put(new TopicPartition(record.topic(), record.kafkaPartition()), record.kafkaOffset());
                context.offset(back);
                context.timeout(200);
                return;
            }
        }

        @Override
        public void stop() {
        }

        @Override
        public String version() {
            return "1";
        }
    }
}
