// Sends records of given value sizes with franz-go and says what became of each.
//
// bootstrap= topic= values=100,1000,100 [partition=0] [together=true] [codec=none|gzip|snappy|lz4|zstd] [then=100] [max=16777216]
//
// together puts all into one batch. then sends more with the same client afterwards, one by one.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
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
	codecs := map[string]kgo.CompressionCodec{
		"": kgo.NoCompression(), "none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	together := options["together"] == "true"
	linger := time.Duration(0)
	if together {
		// Flushed once all are given.
		linger = 10 * time.Second
	}
	partition, _ := strconv.Atoi(options["partition"])
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(options["bootstrap"], ",")...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[options["codec"]]),
		kgo.ProducerBatchMaxBytes(int32(most)),
		kgo.BrokerMaxWriteBytes(100<<20),
		kgo.ProducerLinger(linger),
		kgo.RecordDeliveryTimeout(30*time.Second),
	)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer client.Close()

	var printing sync.Mutex
	printLine := func(line map[string]any) {
		printing.Lock()
		defer printing.Unlock()
		text, _ := json.Marshal(line)
		fmt.Println(string(text))
	}
	send := func(number int, size string, alone bool) {
		bytes, _ := strconv.Atoi(size)
		value := make([]byte, bytes)
		rand.New(rand.NewSource(int64(number))).Read(value)
		record := &kgo.Record{Topic: options["topic"], Partition: int32(partition), Value: value}
		client.Produce(context.Background(), record, func(sent *kgo.Record, err error) {
			line := map[string]any{"record": number, "value_bytes": bytes, "ok": err == nil}
			if err != nil {
				line["exception"] = fmt.Sprintf("%T", err)
				line["text"] = err.Error()
			} else {
				line["offset"] = sent.Offset
			}
			printLine(line)
		})
		if alone {
			_ = client.Flush(context.Background())
		}
	}
	sizes := strings.Split(options["values"], ",")
	for number, size := range sizes {
		send(number, size, !together)
	}
	if err := client.Flush(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if then := options["then"]; then != "" {
		for number, size := range strings.Split(then, ",") {
			send(len(sizes)+number, size, true)
		}
	}
}
