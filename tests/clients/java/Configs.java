import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.config.ConfigResource;

/**
 * Sets configs of topics by Admin, step by step, and says what became of each.
 *
 * <p>{@code bootstrap= steps=create:NAME:KEY:VALUE,set:NAME:KEY:VALUE,delete:NAME:KEY}. One line a step.
 */
public final class Configs {
    public static void main(String[] args) {
        Cli cli = new Cli(args);
        try (Admin admin = Admin.create(cli.client())) {
            for (String step : cli.get("steps").split(",")) {
                String[] parts = step.split(":");
                try {
                    act(admin, parts);
                    Cli.line("step", step, "ok", true);
                } catch (Exception thrown) {
                    Cli.line(Cli.failure(thrown, "step", step));
                }
            }
        }
    }

    private static void act(Admin admin, String[] parts) throws Exception {
        if (parts[0].equals("create")) {
            NewTopic topic = new NewTopic(parts[1], 1, (short) 1).configs(Map.of(parts[2], parts[3]));
            admin.createTopics(List.of(topic)).all().get();
            return;
        }
        boolean set = parts[0].equals("set");
        AlterConfigOp op = new AlterConfigOp(
            new ConfigEntry(parts[2], set ? parts[3] : ""),
            set ? AlterConfigOp.OpType.SET : AlterConfigOp.OpType.DELETE);
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, parts[1]);
        admin.incrementalAlterConfigs(Map.of(topic, List.of(op))).all().get();
    }
}
