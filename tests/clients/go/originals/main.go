// Reads records and says what each is.
//
// bootstrap= topic= records=5 client=franz|sarama [from=0] [seconds=60]
//
// Reads partition 0. One JSON line a record.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
)

type reader struct {
	options map[string]string
	wanted  int
	from    int64
	until   time.Time
}

func say(partition int32, offset int64, key, value []byte, headers []string, timestamp time.Time) {
	digest := sha256.Sum256(value)
	line := map[string]any{
		"partition": partition, "offset": offset, "key": string(key), "bytes": len(value),
		"sha256": hex.EncodeToString(digest[:]), "headers": headers, "timestamp": timestamp.UnixMilli(),
	}
	text, _ := json.Marshal(line)
	fmt.Println(string(text))
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func (r reader) franz() {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(r.options["bootstrap"], ",")...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
			r.options["topic"]: {0: kgo.NewOffset().At(r.from)},
		}),
	)
	if err != nil {
		fail(err)
	}
	defer client.Close()
	ctx, cancel := context.WithDeadline(context.Background(), r.until)
	defer cancel()
	for read := 0; read < r.wanted && ctx.Err() == nil; {
		fetches := client.PollFetches(ctx)
		fetches.EachError(func(_ string, _ int32, err error) {
			if ctx.Err() == nil {
				fail(err)
			}
		})
		fetches.EachRecord(func(record *kgo.Record) {
			read++
			names := []string{}
			for _, header := range record.Headers {
				names = append(names, header.Key)
			}
			say(record.Partition, record.Offset, record.Key, record.Value, names, record.Timestamp)
		})
	}
}

func (r reader) sarama() {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Consumer.Return.Errors = true
	consumer, err := sarama.NewConsumer(strings.Split(r.options["bootstrap"], ","), config)
	if err != nil {
		fail(err)
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(r.options["topic"], 0, r.from)
	if err != nil {
		fail(err)
	}
	for read := 0; read < r.wanted; {
		select {
		case record := <-partition.Messages():
			read++
			names := []string{}
			for _, header := range record.Headers {
				names = append(names, string(header.Key))
			}
			say(record.Partition, record.Offset, record.Key, record.Value, names, record.Timestamp)
		case err := <-partition.Errors():
			fail(err)
		case <-time.After(time.Until(r.until)):
			return
		}
	}
}

func main() {
	options := map[string]string{"from": "0", "seconds": "60", "records": "1"}
	for _, arg := range os.Args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		options[key] = value
	}
	wanted, _ := strconv.Atoi(options["records"])
	from, _ := strconv.ParseInt(options["from"], 10, 64)
	seconds, _ := strconv.Atoi(options["seconds"])
	r := reader{options, wanted, from, time.Now().Add(time.Duration(seconds) * time.Second)}
	if options["client"] == "sarama" {
		r.sarama()
	} else {
		r.franz()
	}
	fmt.Println(`{"end":true}`)
}
