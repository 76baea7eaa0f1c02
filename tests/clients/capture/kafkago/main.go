// Sends given records with kafka-go, all in one batch.
//
// bootstrap= topic= records=FILE [codec=none|gzip|snappy|lz4|zstd]
//
// FILE has a line for each record: its key, a space, its value in base64.
package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
)

func main() {
	options := map[string]string{}
	for _, arg := range os.Args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		options[key] = value
	}
	if err := send(options); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func send(options map[string]string) error {
	codecs := map[string]kafka.Compression{
		"": 0, "none": 0, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
	}
	codec, known := codecs[options["codec"]]
	if !known {
		return fmt.Errorf("unknown codec %q", options["codec"])
	}
	messages, err := read(options["records"])
	if err != nil {
		return err
	}
	writer := &kafka.Writer{
		Addr:         kafka.TCP(strings.Split(options["bootstrap"], ",")...),
		Topic:        options["topic"],
		Compression:  codec,
		RequiredAcks: kafka.RequireAll,
		MaxAttempts:  1,
		BatchBytes:   16 << 20,
		// Full, and so sent, once all are given.
		BatchSize:    len(messages),
		BatchTimeout: 10 * time.Second,
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := writer.WriteMessages(ctx, messages...); err != nil {
		return err
	}
	return writer.Close()
}

func read(path string) ([]kafka.Message, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 64<<20)
	var messages []kafka.Message
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), " ")
		bytes, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			return nil, err
		}
		messages = append(messages, kafka.Message{Key: []byte(key), Value: bytes})
	}
	return messages, lines.Err()
}
