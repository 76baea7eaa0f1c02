// The Go clients of `make soak`; tests/clients/java/soak/Soak.java does the same.
//
// client=franz|sarama role=produce|consume bootstrap= out=FILE. What each writes, and its other arguments: tests/it/soak.rs.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	options = map[string]string{}
	brokers []string
	out     *bufio.Writer
	writing sync.Mutex
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func number(key string) int {
	value, err := strconv.Atoi(options[key])
	must(err)
	return value
}

func exists(key string) bool {
	_, err := os.Stat(options[key])
	return err == nil
}

func line(words ...any) {
	writing.Lock()
	defer writing.Unlock()
	_, err := fmt.Fprintln(out, words...)
	must(err)
}

type random uint64

func (r *random) below(n int) int {
	*r = *r*6364136223846793005 + 1442695040888963407
	return int(uint64(*r>>33) % uint64(n))
}

// sent is one record; done says what became of it. True: the producer may be one that can do no more.
type sent struct {
	number, size, partition int
	at                      int64
}

func (s sent) done(offset int64, err error, isSize bool) bool {
	result := "ok"
	switch {
	case isSize:
		result, offset = "size", -1
	case err != nil:
		result, offset = strings.Join(strings.Fields(err.Error()), "_"), -1
	}
	line(s.number, s.size, s.partition, s.at, time.Now().UnixMilli(), offset, result)
	return err != nil && !isSize
}

type producer interface {
	send(value []byte, s sent)
	flush()
	close()
	isBroken() bool
}

// broken is set from callbacks.
type broken struct {
	mutex sync.Mutex
	is    bool
}

func (b *broken) set(is bool) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.is = b.is || is
}

func (b *broken) isBroken() bool {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.is
}

type franz struct {
	broken
	client *kgo.Client
}

func newFranz() producer {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(5*time.Millisecond),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.RecordDeliveryTimeout(2*time.Minute),
	)
	must(err)
	return &franz{client: client}
}

func (f *franz) send(value []byte, s sent) {
	record := &kgo.Record{Topic: options["topic"], Partition: int32(s.partition), Value: value}
	f.client.Produce(context.Background(), record, func(stored *kgo.Record, err error) {
		f.set(s.done(stored.Offset, err, errors.Is(err, kerr.MessageTooLarge)))
	})
}

func (f *franz) flush() { must(f.client.Flush(context.Background())) }
func (f *franz) close() { f.client.Close() }

type saramaProducer struct {
	broken
	producer sarama.AsyncProducer
	pending  sync.WaitGroup
	reading  sync.WaitGroup
}

func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Metadata.Retry.Max = 20
	return config
}

func newSarama() producer {
	config := saramaConfig()
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Return.Successes = true
	config.Producer.MaxMessageBytes = 1 << 20
	config.Producer.Compression = sarama.CompressionSnappy
	// A broker is away for up to some ten seconds: 0.1 s, 100 times are two minutes with what each try takes.
	config.Producer.Retry.Max = 100
	config.Producer.Retry.Backoff = 500 * time.Millisecond
	var made sarama.AsyncProducer
	// It asks for a producer id at once, of whoever is there.
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Second) {
		var err error
		if made, err = sarama.NewAsyncProducer(brokers, config); err == nil {
			break
		}
		if time.Now().After(end) {
			must(err)
		}
	}
	s := &saramaProducer{producer: made}
	s.reading.Add(2)
	go func() {
		defer s.reading.Done()
		for stored := range made.Successes() {
			stored.Metadata.(sent).done(stored.Offset, nil, false)
			s.pending.Done()
		}
	}()
	go func() {
		defer s.reading.Done()
		for failed := range made.Errors() {
			s.set(failed.Msg.Metadata.(sent).done(-1, failed.Err, errors.Is(failed.Err, sarama.ErrMessageSizeTooLarge)))
			s.pending.Done()
		}
	}()
	return s
}

func (s *saramaProducer) send(value []byte, given sent) {
	s.pending.Add(1)
	s.producer.Input() <- &sarama.ProducerMessage{
		Topic: options["topic"], Partition: int32(given.partition), Value: sarama.ByteEncoder(value), Metadata: given,
	}
}

func (s *saramaProducer) flush() { s.pending.Wait() }

func (s *saramaProducer) close() {
	s.producer.AsyncClose()
	s.reading.Wait()
}

func produce(create func() producer) {
	var specials []int
	for _, size := range strings.Split(options["specials"], ",") {
		value, err := strconv.Atoi(size)
		must(err)
		specials = append(specials, value)
	}
	every, partitions, isSingle := number("every"), number("partitions"), options["single"] == "true"
	period := time.Duration(number("period_ms")) * time.Millisecond
	rng := random(number("seed"))
	p := create()
	for n := 0; !exists("stop"); n++ {
		isSpecial := rng.below(every) == 0
		var size int
		if isSpecial {
			size = specials[rng.below(len(specials))]
		} else {
			size = 40 + rng.below(1000)
		}
		if isSpecial || isSingle {
			p.flush()
		}
		value := bytes.Repeat([]byte("x"), size)
		copy(value, fmt.Sprintf("%s %d ", options["name"], n))
		p.send(value, sent{n, size, n % partitions, time.Now().UnixMilli()})
		if isSpecial || isSingle {
			p.flush()
		}
		if p.isBroken() {
			p.flush()
			p.close()
			p = create()
		}
		time.Sleep(period)
	}
	p.flush()
	p.close()
}

type place struct {
	topic     string
	partition int32
}

type progress struct {
	mutex sync.Mutex
	seen  map[place]int64
}

func (p *progress) note(topic string, partition int32, offset int64, value []byte) {
	words := strings.SplitN(string(value[:min(40, len(value))]), " ", 3)
	line(topic, partition, offset, words[0], words[1], len(value))
	p.mutex.Lock()
	defer p.mutex.Unlock()
	at := place{topic, partition}
	p.seen[at] = max(p.seen[at], offset+1)
}

func (p *progress) isAtEnd() bool {
	if !exists("ends") {
		return false
	}
	text, err := os.ReadFile(options["ends"])
	must(err)
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, each := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		var at place
		var end int64
		_, err := fmt.Sscan(each, &at.topic, &at.partition, &end)
		must(err)
		if p.seen[at] < end {
			return false
		}
	}
	return true
}

func consumeFranz(p *progress) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...), kgo.ConsumerGroup(options["name"]), kgo.ConsumeTopics(strings.Split(options["topics"], ",")...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.AutoCommitInterval(time.Second),
	)
	must(err)
	defer client.Close()
	for !p.isAtEnd() {
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		fetches := client.PollFetches(ctx)
		cancel()
		fetches.EachRecord(func(record *kgo.Record) { p.note(record.Topic, record.Partition, record.Offset, record.Value) })
	}
}

type handler struct{ p *progress }

func (handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (h handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case record, isOpen := <-claim.Messages():
			if !isOpen {
				return nil
			}
			h.p.note(record.Topic, record.Partition, record.Offset, record.Value)
			session.MarkMessage(record, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func consumeSarama(p *progress) {
	config := saramaConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	var group sarama.ConsumerGroup
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Second) {
		var err error
		if group, err = sarama.NewConsumerGroup(brokers, options["name"], config); err == nil {
			break
		}
		if time.Now().After(end) {
			must(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for !p.isAtEnd() {
			time.Sleep(500 * time.Millisecond)
		}
		cancel()
	}()
	for ctx.Err() == nil {
		if err := group.Consume(ctx, strings.Split(options["topics"], ","), handler{p}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			time.Sleep(time.Second)
		}
	}
	must(group.Close())
}

func main() {
	for _, arg := range os.Args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		options[key] = value
	}
	brokers = strings.Split(options["bootstrap"], ",")
	file, err := os.Create(options["out"])
	must(err)
	out = bufio.NewWriter(file)
	p := &progress{seen: map[place]int64{}}
	switch options["role"] + " " + options["client"] {
	case "produce franz":
		produce(newFranz)
	case "produce sarama":
		produce(newSarama)
	case "consume franz":
		consumeFranz(p)
	case "consume sarama":
		consumeSarama(p)
	default:
		must(fmt.Errorf("no such role and client"))
	}
	must(out.Flush())
	must(file.Close())
}
