// What a client does through the proxy: it sends a record, has one refused, sends another, and reads what is there.
//
// client=kafkajs|platformatic bootstrap= topic=. One JSON line: the refusal's text, the values read.
import { createRequire } from 'node:module';

const options = Object.fromEntries(process.argv.slice(2).map((arg) => {
  const at = arg.indexOf('=');
  return [arg.slice(0, at), arg.slice(at + 1)];
}));
const { topic } = options;
const brokers = options.bootstrap.split(',');
// By NODE_PATH, which only `require` heeds.
const require = createRequire(import.meta.url);
const PATIENCE_MS = 30_000;

function say(refusal, read) {
  console.log(JSON.stringify({ refusal, read: read.map((value) => value.toString().slice(0, 9)).join(' ') }));
}

async function refusalOf(sending) {
  try {
    await sending;
    return '';
  } catch (error) {
    const causes = [error, ...(error.errors ?? []), error.cause ?? {}];
    return causes.map((cause) => cause.message).filter(Boolean).join(' / ');
  }
}

async function kafkajs() {
  const { Kafka, logLevel } = require('kafkajs');
  const kafka = new Kafka({ brokers, logLevel: logLevel.NOTHING, retry: { retries: 2 } });
  const producer = kafka.producer();
  const send = (value) => producer.send({ topic, messages: [{ partition: 0, value }] });
  await producer.connect();
  await send('first');
  const refusal = await refusalOf(send(Buffer.alloc(100_000)));
  await send('last');
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: `compatibility-${Date.now()}` });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  const read = [];
  await new Promise((resolve) => {
    setTimeout(resolve, PATIENCE_MS);
    consumer.run({
      eachMessage: async ({ message }) => {
        read.push(message.value);
        if (message.value.toString() === 'last') resolve();
      },
    });
  });
  await consumer.disconnect();
  say(refusal, read);
}

async function platformatic() {
  const { Producer, Consumer } = require('@platformatic/kafka');
  const producer = new Producer({ clientId: 'platformatic', bootstrapBrokers: brokers, retries: 2 });
  const send = (value) => producer.send({ messages: [{ topic, partition: 0, value: Buffer.from(value) }], acks: -1 });
  await send('first');
  const refusal = await refusalOf(send('x'.repeat(100_000)));
  await send('last');
  await producer.close();
  const consumer = new Consumer({ clientId: 'platformatic', groupId: `compatibility-${Date.now()}`, bootstrapBrokers: brokers });
  const stream = await consumer.consume({ topics: [topic], mode: 'earliest', autocommit: true });
  const read = [];
  for await (const message of stream) {
    read.push(message.value);
    if (message.value.toString() === 'last') break;
  }
  await consumer.close(true);
  say(refusal, read);
}

await { kafkajs, platformatic }[options.client]();
process.exit(0);
