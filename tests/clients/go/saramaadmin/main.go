// Sets configs of topics with sarama, step by step, and says what became of each.
//
// bootstrap= steps=create:NAME:KEY:VALUE,set:NAME:KEY:VALUE,replace:NAME:KEY:VALUE
//
// set is IncrementalAlterConfigs, replace is AlterConfigs.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/IBM/sarama"
)

func main() {
	options := map[string]string{}
	for _, arg := range os.Args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		options[key] = value
	}
	config := sarama.NewConfig()
	// From 2.4 on this client sends AlterConfigs in version 2, without the tagged fields of its configs: brokers close on
	// it, and so does sizegate.
	config.Version = sarama.V2_3_0_0
	if options["version"] == "new" {
		config.Version = sarama.V3_6_0_0
	}
	admin, err := sarama.NewClusterAdmin(strings.Split(options["bootstrap"], ","), config)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer admin.Close()
	for _, step := range strings.Split(options["steps"], ",") {
		parts := strings.Split(step, ":")
		verb, name, key, value := parts[0], parts[1], parts[2], parts[3]
		var err error
		switch verb {
		case "create":
			detail := &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1, ConfigEntries: map[string]*string{key: &value}}
			err = admin.CreateTopic(name, detail, false)
		case "set":
			entry := sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value}
			entries := map[string]sarama.IncrementalAlterConfigsEntry{key: entry}
			err = admin.IncrementalAlterConfig(sarama.TopicResource, name, entries, false)
		default:
			err = admin.AlterConfig(sarama.TopicResource, name, map[string]*string{key: &value}, false)
		}
		line := map[string]any{"step": step, "ok": err == nil}
		if err != nil {
			line["exception"] = fmt.Sprintf("%T", err)
			line["text"] = err.Error()
		}
		text, _ := json.Marshal(line)
		fmt.Println(string(text))
	}
}
