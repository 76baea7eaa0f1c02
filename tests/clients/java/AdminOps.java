import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.UUID;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/**
 * The life of a topic by Admin, and every place where Admin shows addresses.
 *
 * <p>{@code bootstrap=}. One line a step; all addresses seen are in {@code addresses}.
 */
public final class AdminOps {
    private static final TreeSet<String> ADDRESSES = new TreeSet<>();

    public static void main(String[] args) throws Exception {
        Cli cli = new Cli(args);
        String topic = "admin-" + UUID.randomUUID();
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        try (Admin admin = Admin.create(cli.client())) {
            DescribeClusterResult cluster = admin.describeCluster();
            see(cluster.nodes().get());
            see(List.of(cluster.controller().get()));
            Cli.line("step", "describeCluster", "nodes", cluster.nodes().get().stream().map(Node::id).sorted().toList(),
                "cluster", cluster.clusterId().get());

            admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1).configs(Map.of("max.message.bytes", "5000"))))
                .all().get();
            Cli.line("step", "createTopics", "listed", admin.listTopics().names().get().contains(topic));

            await(() -> admin.describeTopics(List.of(topic)).topicNameValues().get(topic).get().partitions().size() == 2);
            TopicDescription description = admin.describeTopics(List.of(topic)).topicNameValues().get(topic).get();
            description.partitions().forEach(partition -> see(partition.replicas()));
            Cli.line("step", "describeTopics", "partitions", description.partitions().size());

            ConfigEntry created = entry(admin, resource);
            Cli.line("step", "describeConfigs", "value", created.value(), "source", String.valueOf(created.source()));

            admin.incrementalAlterConfigs(Map.of(resource, List.of(new AlterConfigOp(
                new ConfigEntry("max.message.bytes", "6000"), AlterConfigOp.OpType.SET)))).all().get();
            await(() -> entry(admin, resource).value().equals("6000"));
            Cli.line("step", "incrementalAlterConfigs", "value", entry(admin, resource).value());

            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
            await(() -> admin.describeTopics(List.of(topic)).topicNameValues().get(topic).get().partitions().size() == 3);
            Cli.line("step", "createPartitions", "partitions", 3);

            TopicPartition first = new TopicPartition(topic, 0);
            Cli.line("step", "listOffsets", "offset",
                admin.listOffsets(Map.of(first, OffsetSpec.latest())).partitionResult(first).get().offset());

            Cli.line("step", "describeLogDirs", "nodes", admin.describeLogDirs(List.of(1)).allDescriptions().get().size());
            see(admin.describeCluster().nodes().get());
            Cli.line("step", "describeMetadataQuorum", "leader",
                admin.describeMetadataQuorum().quorumInfo().get().leaderId());

            admin.deleteTopics(List.of(topic)).all().get();
            await(() -> !admin.listTopics().names().get().contains(topic));
            Cli.line("step", "deleteTopics", "listed", false);
        }
        Cli.line("addresses", ADDRESSES);
    }

    private interface Check {
        boolean holds() throws Exception;
    }

    /** Brokers learn of changes a little after the answer. */
    private static void await(Check check) throws Exception {
        long end = System.nanoTime() + 30_000_000_000L;
        while (true) {
            try {
                if (check.holds()) {
                    return;
                }
            } catch (java.util.concurrent.ExecutionException e) {
                if (!(e.getCause() instanceof org.apache.kafka.common.errors.UnknownTopicOrPartitionException)) {
                    throw e;
                }
            }
            if (System.nanoTime() > end) {
                throw new IllegalStateException("not within 30 s");
            }
            Thread.sleep(20);
        }
    }

    private static ConfigEntry entry(Admin admin, ConfigResource resource) throws Exception {
        Config config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
        return config.get("max.message.bytes");
    }

    private static void see(Collection<Node> nodes) {
        nodes.forEach(node -> ADDRESSES.add(node.host() + ":" + node.port()));
    }
}
