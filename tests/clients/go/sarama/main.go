// Sends records of given value sizes with sarama and says what became of each.
//
// bootstrap= topic= values=100,1000,100 [partition=0] [together=true] [codec=none|gzip|snappy|lz4|zstd] [then=100] [max=16777216]
//
// together puts all into one batch. then sends more with the same producer afterwards, one by one.
package main

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"strconv"
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
	most, err := strconv.Atoi(options["max"])
	if err != nil {
		most = 16 << 20
	}
	codecs := map[string]sarama.CompressionCodec{
		"": sarama.CompressionNone, "none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP,
		"snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	}
	sizes := strings.Split(options["values"], ",")
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Return.Successes = true
	config.Producer.Compression = codecs[options["codec"]]
	config.Producer.MaxMessageBytes = most
	if options["together"] == "true" {
		config.Producer.Flush.Messages = len(sizes)
		config.Producer.Flush.Frequency = 2 * time.Second
	}
	producer, err := sarama.NewAsyncProducer(strings.Split(options["bootstrap"], ","), config)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	partition, _ := strconv.Atoi(options["partition"])
	report := func() {
		line := map[string]any{}
		var message *sarama.ProducerMessage
		select {
		case message = <-producer.Successes():
			line["ok"] = true
			line["offset"] = message.Offset
		case failed := <-producer.Errors():
			message = failed.Msg
			line["ok"] = false
			line["exception"] = fmt.Sprintf("%T", failed.Err)
			line["text"] = failed.Err.Error()
		}
		line["record"] = message.Metadata
		line["value_bytes"] = message.Value.Length()
		text, _ := json.Marshal(line)
		fmt.Println(string(text))
	}
	send := func(number int, size string) {
		bytes, _ := strconv.Atoi(size)
		value := make([]byte, bytes)
		rand.New(rand.NewSource(int64(number))).Read(value)
		producer.Input() <- &sarama.ProducerMessage{
			Topic: options["topic"], Partition: int32(partition), Value: sarama.ByteEncoder(value), Metadata: number,
		}
	}
	for number, size := range sizes {
		send(number, size)
		if options["together"] != "true" {
			report()
		}
	}
	if options["together"] == "true" {
		for range sizes {
			report()
		}
	}
	if then := options["then"]; then != "" {
		for number, size := range strings.Split(then, ",") {
			send(len(sizes)+number, size)
			report()
		}
	}
	if err := producer.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
