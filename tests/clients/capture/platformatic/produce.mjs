// Sends given records with @platformatic/kafka, all in one batch. Node.js 22.22 or newer.
//
// bootstrap= topic= records=FILE [codec=none|gzip|snappy|lz4|zstd]
//
// FILE has a line for each record: its key, a space, its value in base64.
import { readFileSync } from 'node:fs';
import { Producer } from '@platformatic/kafka';

const options = Object.fromEntries(process.argv.slice(2).map((arg) => {
  const at = arg.indexOf('=');
  return [arg.slice(0, at), arg.slice(at + 1)];
}));

const messages = readFileSync(options.records, 'utf8').trimEnd().split('\n').map((line) => {
  const [key, value] = line.split(' ');
  return { topic: options.topic, partition: 0, key: Buffer.from(key), value: Buffer.from(value, 'base64') };
});
const producer = new Producer({
  clientId: 'platformatic',
  bootstrapBrokers: options.bootstrap.split(','),
  retries: 0,
});
await producer.send({ messages, acks: -1, compression: options.codec ?? 'none' });
await producer.close();
