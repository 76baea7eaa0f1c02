// Sets configs of topics with sarama, step by step, and says what became of each.
//
// bootstrap= steps=create:NAME:KEY:VALUE,set:NAME:KEY:VALUE,replace:NAME:KEY:VALUE
//
// set is IncrementalAlterConfigs, replace is AlterConfigs. terraform-create and terraform-update make the calls of
// Terraform's provider for Kafka (Mongey/kafka, CreateTopic and UpdateTopic in kafka/client.go at 678b3c7), and show of
// their responses what it shows.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

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
		case "terraform-create":
			err = terraformCreate(admin, name, key, value)
		case "terraform-update":
			err = terraformUpdate(admin, name, key, value)
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

// CreateTopics 3: of a refusal the provider shows the code's own words.
func terraformCreate(admin sarama.ClusterAdmin, name, key, value string) error {
	broker, err := admin.Controller()
	if err != nil {
		return err
	}
	detail := &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1, ConfigEntries: map[string]*string{key: &value}}
	response, err := broker.CreateTopics(&sarama.CreateTopicsRequest{
		Version:      3,
		TopicDetails: map[string]*sarama.TopicDetail{name: detail},
		Timeout:      time.Minute,
	})
	if err != nil {
		return err
	}
	for _, topic := range response.TopicErrors {
		if topic.Err != sarama.ErrNoError {
			return topic.Err
		}
	}
	return nil
}

// AlterConfigs 1: of a refusal the provider shows the text.
func terraformUpdate(admin sarama.ClusterAdmin, name, key, value string) error {
	broker, err := admin.Controller()
	if err != nil {
		return err
	}
	response, err := broker.AlterConfigs(&sarama.AlterConfigsRequest{
		Version: 1,
		Resources: []*sarama.AlterConfigsResource{
			{Type: sarama.TopicResource, Name: name, ConfigEntries: map[string]*string{key: &value}},
		},
	})
	if err != nil {
		return err
	}
	for _, resource := range response.Resources {
		if resource.ErrorCode != int16(sarama.ErrNoError) {
			return errors.New(resource.ErrorMsg)
		}
	}
	return nil
}
