// Reads records with kafkajs and says what each is.
//
// bootstrap= topic= records=5 group= [seconds=60]
//
// One JSON line a record.
'use strict';

const crypto = require('crypto');
const { Kafka, logLevel } = require('kafkajs');

const options = Object.fromEntries(process.argv.slice(2).map((arg) => {
  const at = arg.indexOf('=');
  return [arg.slice(0, at), arg.slice(at + 1)];
}));

function print(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

async function main() {
  const kafka = new Kafka({ brokers: options.bootstrap.split(','), clientId: 'kafkajs', logLevel: logLevel.NOTHING });
  const consumer = kafka.consumer({ groupId: options.group });
  await consumer.connect();
  await consumer.subscribe({ topics: [options.topic], fromBeginning: true });
  let read = 0;
  const all = new Promise((resolve) => {
    setTimeout(resolve, 1000 * Number(options.seconds ?? 60)).unref();
    consumer.run({
      autoCommit: true,
      eachMessage: async ({ partition, message }) => {
        print({
          partition,
          offset: Number(message.offset),
          key: message.key === null ? null : message.key.toString(),
          bytes: message.value === null ? -1 : message.value.length,
          sha256: message.value === null ? null : crypto.createHash('sha256').update(message.value).digest('hex'),
          headers: Object.keys(message.headers ?? {}),
          timestamp: Number(message.timestamp),
        });
        read += 1;
        if (read >= Number(options.records)) {
          resolve();
        }
      },
    }).catch((error) => {
      process.stderr.write(`${error.stack}\n`);
      process.exit(1);
    });
  });
  const alive = setInterval(() => {}, 1000);
  await all;
  clearInterval(alive);
  await consumer.disconnect();
  print({ end: true });
}

main().catch((error) => {
  process.stderr.write(`${error.stack}\n`);
  process.exit(1);
});
