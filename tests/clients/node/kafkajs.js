// Sends with kafkajs and says what became of it.
//
// bootstrap= topic= sends=0:100,1:1000;0:100 [idempotent=true] [acks=-1] [codec=none|gzip]
//
// `sends` are calls of producer.send, one after the other, separated by `;`; each is a list of PARTITION:BYTES.
// One JSON line a call, and at the end one with the number of records each partition has.
'use strict';

const { Kafka, CompressionTypes, logLevel } = require('kafkajs');

const options = Object.fromEntries(process.argv.slice(2).map((arg) => {
  const at = arg.indexOf('=');
  return [arg.slice(0, at), arg.slice(at + 1)];
}));

function print(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

async function main() {
  const kafka = new Kafka({
    brokers: options.bootstrap.split(','),
    clientId: 'kafkajs',
    logLevel: logLevel.NOTHING,
    retry: { retries: 2 },
  });
  const idempotent = options.idempotent === 'true';
  const producer = kafka.producer({ idempotent, maxInFlightRequests: 1 });
  const admin = kafka.admin();
  await producer.connect();
  await admin.connect();
  const calls = options.sends.split(';');
  for (const [index, call] of calls.entries()) {
    const messages = call.split(',').map((each) => {
      const [partition, bytes] = each.split(':').map(Number);
      return { partition, value: Buffer.alloc(bytes, 'A') };
    });
    try {
      const results = await producer.send({
        topic: options.topic,
        messages,
        acks: Number(options.acks ?? -1),
        compression: options.codec === 'gzip' ? CompressionTypes.GZIP : CompressionTypes.None,
      });
      print({ send: index, ok: true, offsets: results.map((each) => [each.partition, Number(each.baseOffset)]) });
    } catch (error) {
      print({ send: index, ok: false, exception: error.name, text: error.message, code: error.code });
    }
  }
  const offsets = await admin.fetchTopicOffsets(options.topic);
  const stored = Object.fromEntries(offsets.map((each) => [each.partition, Number(each.high)]));
  print({ stored });
  await producer.disconnect();
  await admin.disconnect();
}

main().catch((error) => {
  process.stderr.write(`${error.stack}\n`);
  process.exit(1);
});
