// What a client does through the proxy: it sends a record, has one refused, sends another, and reads what is there.
//
// client=franz|sarama|kafka-go bootstrap= topic=. One JSON line: the refusal's text, the values read.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

var tooLarge = make([]byte, 100_000)

type client struct {
	brokers []string
	topic   string
	ctx     context.Context
	read    []string
}

// took notes a value; true: it was the last.
func (c *client) took(value []byte) bool {
	c.read = append(c.read, string(value[:min(9, len(value))]))
	return string(value) == "last"
}

// sent sends three records; the second may be refused.
func sent(send func(value []byte) error) string {
	must(send([]byte("first")))
	refusal := ""
	if err := send(tooLarge); err != nil {
		refusal = err.Error()
	}
	must(send([]byte("last")))
	return refusal
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (c *client) franz() string {
	producer, err := kgo.NewClient(kgo.SeedBrokers(c.brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	must(err)
	refusal := sent(func(value []byte) error {
		return producer.ProduceSync(c.ctx, &kgo.Record{Topic: c.topic, Value: value}).FirstErr()
	})
	producer.Close()
	from := map[string]map[int32]kgo.Offset{c.topic: {0: kgo.NewOffset().AtStart()}}
	consumer, err := kgo.NewClient(kgo.SeedBrokers(c.brokers...), kgo.ConsumePartitions(from))
	must(err)
	defer consumer.Close()
	for isOver := false; !isOver; {
		fetches := consumer.PollFetches(c.ctx)
		must(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) { isOver = c.took(record.Value) || isOver })
	}
	return refusal
}

func (c *client) sarama() string {
	config := sarama.NewConfig()
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	producer, err := sarama.NewSyncProducer(c.brokers, config)
	must(err)
	refusal := sent(func(value []byte) error {
		_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: c.topic, Value: sarama.ByteEncoder(value)})
		return err
	})
	must(producer.Close())
	consumer, err := sarama.NewConsumer(c.brokers, config)
	must(err)
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(c.topic, 0, sarama.OffsetOldest)
	must(err)
	for {
		select {
		case record := <-partition.Messages():
			if c.took(record.Value) {
				return refusal
			}
		case <-c.ctx.Done():
			must(c.ctx.Err())
		}
	}
}

func (c *client) kafkaGo() string {
	writer := &kafka.Writer{
		Addr: kafka.TCP(c.brokers...), Topic: c.topic, RequiredAcks: kafka.RequireAll, BatchTimeout: time.Millisecond,
	}
	refusal := sent(func(value []byte) error {
		return writer.WriteMessages(c.ctx, kafka.Message{Value: value})
	})
	must(writer.Close())
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: c.brokers, Topic: c.topic, Partition: 0, MaxWait: time.Second})
	defer reader.Close()
	for {
		message, err := reader.ReadMessage(c.ctx)
		must(err)
		if c.took(message.Value) {
			return refusal
		}
	}
}

func main() {
	options := map[string]string{}
	for _, arg := range os.Args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		options[key] = value
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := &client{brokers: strings.Split(options["bootstrap"], ","), topic: options["topic"], ctx: ctx}
	clients := map[string]func() string{"franz": c.franz, "sarama": c.sarama, "kafka-go": c.kafkaGo}
	refusal := clients[options["client"]]()
	text, err := json.Marshal(map[string]string{"refusal": refusal, "read": strings.Join(c.read, " ")})
	must(err)
	fmt.Println(string(text))
}
