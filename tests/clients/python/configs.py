"""Sets configs of topics with one of two Python clients, step by step, and says what became of each.

client=confluent|kafka-python bootstrap= steps=create:NAME:KEY:VALUE,set:NAME:KEY:VALUE,replace:NAME:KEY:VALUE

set is IncrementalAlterConfigs, replace is AlterConfigs. One JSON line a step.
"""

import json
import sys

OPTIONS = dict(arg.split("=", 1) for arg in sys.argv[1:])
BOOTSTRAP = OPTIONS["bootstrap"]


def by_confluent():
    from confluent_kafka.admin import (
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        NewTopic,
        ResourceType,
    )

    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})

    def act(verb, name, key, value):
        if verb == "create":
            topic = NewTopic(name, num_partitions=1, replication_factor=1, config={key: value})
            futures = admin.create_topics([topic])
        elif verb == "set":
            entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
            futures = admin.incremental_alter_configs([resource])
        else:
            resource = ConfigResource(ResourceType.TOPIC, name, set_config={key: value})
            futures = admin.alter_configs([resource])
        for future in futures.values():
            future.result(60)

    return act


def by_kafka_python():
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic

    admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)

    def act(verb, name, key, value):
        if verb == "create":
            admin.create_topics([NewTopic(name, 1, 1, topic_configs={key: value})])
            return
        resource = ConfigResource(ConfigResourceType.TOPIC, name, configs={key: value})
        result = admin.alter_configs([resource], incremental=verb == "set")
        # This client raises for CreateTopics alone; here the code and the text are in what it returns.
        told = json.dumps(result, default=str)
        if f'"{name}": "OK"' not in told:
            raise RuntimeError(told)

    return act


act = by_confluent() if OPTIONS["client"] == "confluent" else by_kafka_python()
for step in OPTIONS["steps"].split(","):
    line = {"step": step, "ok": True}
    try:
        act(*step.split(":"))
    except Exception as error:
        line = {"step": step, "ok": False, "exception": type(error).__name__, "text": str(error)}
    print(json.dumps(line), flush=True)
