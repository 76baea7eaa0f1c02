// Sets configs of topics with franz-go, step by step, and says what became of each.
//
// bootstrap= steps=create:NAME:KEY:VALUE,set:NAME:KEY:VALUE,replace:NAME:KEY:VALUE
//
// set is IncrementalAlterConfigs, replace is AlterConfigs; text is what the response bears, as kadm shows it.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func main() {
	options := map[string]string{}
	for _, arg := range os.Args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		options[key] = value
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(options["bootstrap"], ",")...))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer client.Close()
	for _, step := range strings.Split(options["steps"], ",") {
		parts := strings.Split(step, ":")
		code, message, err := act(client, parts[0], parts[1], parts[2], parts[3])
		line := map[string]any{"step": step, "ok": err == nil && code == 0}
		if err == nil && code != 0 {
			err = kerr.ErrorForCode(code)
		}
		if err != nil {
			line["exception"] = err.Error()
			if message != nil {
				line["text"] = *message
			}
		}
		text, _ := json.Marshal(line)
		fmt.Println(string(text))
	}
}

func act(client *kgo.Client, verb, name, key, value string) (int16, *string, error) {
	ctx := context.Background()
	switch verb {
	case "create":
		config := kmsg.NewCreateTopicsRequestTopicConfig()
		config.Name, config.Value = key, &value
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, 1, 1
		topic.Configs = append(topic.Configs, config)
		request := kmsg.NewPtrCreateTopicsRequest()
		request.Topics = append(request.Topics, topic)
		request.TimeoutMillis = 30000
		response, err := request.RequestWith(ctx, client)
		if err != nil {
			return 0, nil, err
		}
		return response.Topics[0].ErrorCode, response.Topics[0].ErrorMessage, nil
	case "set":
		config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		config.Name, config.Op, config.Value = key, kmsg.IncrementalAlterConfigOpSet, &value
		resource := kmsg.NewIncrementalAlterConfigsRequestResource()
		resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, name
		resource.Configs = append(resource.Configs, config)
		request := kmsg.NewPtrIncrementalAlterConfigsRequest()
		request.Resources = append(request.Resources, resource)
		response, err := request.RequestWith(ctx, client)
		if err != nil {
			return 0, nil, err
		}
		return response.Resources[0].ErrorCode, response.Resources[0].ErrorMessage, nil
	default:
		config := kmsg.NewAlterConfigsRequestResourceConfig()
		config.Name, config.Value = key, &value
		resource := kmsg.NewAlterConfigsRequestResource()
		resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, name
		resource.Configs = append(resource.Configs, config)
		request := kmsg.NewPtrAlterConfigsRequest()
		request.Resources = append(request.Resources, resource)
		response, err := request.RequestWith(ctx, client)
		if err != nil {
			return 0, nil, err
		}
		return response.Resources[0].ErrorCode, response.Resources[0].ErrorMessage, nil
	}
}
