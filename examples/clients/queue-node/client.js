// A client of Reprieve's scheduling queue: three pods come, two are tried, one has to wait.
'use strict';

const path = require('node:path');
const { promisify } = require('node:util');
const grpc = require('@grpc/grpc-js');
const protoLoader = require('@grpc/proto-loader');

const PROTOS = process.env.PROTOS || path.join(__dirname, '..', '..', '..', 'protos');
const ADDRESS = process.argv[2] || '127.0.0.1:50051';

// 64-bit integers as strings: a Number does not hold times in ns since the Unix epoch exactly.
const definition = protoLoader.loadSync('reprieve/queue/v1beta1/queue_service.proto', {
  includeDirs: [PROTOS], keepCase: true, longs: String, enums: String, defaults: true,
});
const { QueueService } = grpc.loadPackageDefinition(definition).reprieve.queue.v1beta1;

const pod = (name, priority) => ({
  metadata: { name, namespace: 'default', uid: `uid-${name}` },
  spec: { priority },
});

async function main() {
  const client = new QueueService(ADDRESS, grpc.credentials.createInsecure());
  const call = (method, request) => promisify(client[method]).call(client, request);
  const { session_id: session, config } = await call('CreateSession', {
    config: { pop_from_backoff_q: false }, // what is left out has upstream's defaults
  });
  console.log(`a session by the rules of ${config.rules}`);
  try {
    await play((request) => call('Apply', request), session);
  } finally {
    await call('DeleteSession', { session_id: session });
    client.close();
  }
}

async function play(call, session) {
  let sequence = 0; // each request has the next number, and can be sent again under it
  const apply = (operations, heads = 0) => {
    sequence += 1;
    return call({ stamp: { session_id: session, sequence }, operations, heads });
  };
  const names = (heads) => heads.map((head) => head.pop.uid).join(', ');
  const popped = ({ results: [{ code, popped: head }] }) => (
    head ? `popped ${head.pop.uid}` : `popped nothing: ${code}`
  );

  let answer = await apply([
    { time_ns: 0, add: { pod: pod('batch', 0) } },
    { time_ns: 0, add: { pod: pod('web', 100) } },
    { time_ns: 0, add: { pod: pod('cron', 0) } },
  ], 3);
  console.log(`in order of priority, then of arrival: ${names(answer.heads)}`);

  answer = await apply([{ time_ns: 0, pop: {} }]);
  console.log(`${popped(answer)}; it was bound`);
  await apply([{ time_ns: 0, done: answer.results[0].popped.pop }]);

  answer = await apply([{ time_ns: 0, pop: {} }]);
  console.log(`${popped(answer)}; no node has room for it`);
  const { pop } = answer.results[0].popped;
  const failure = { unschedulable_plugins: ['NodeResourcesFit'] };
  // Plugins that refuse a pod say which events may help it. A node comes, so it may be tried again,
  // but not at once: Pop prefers the others until its backoff has ended.
  answer = await apply([
    { time_ns: 0, add_unschedulable: { pop, failure } },
    { time_ns: 0, move: { event: { label: 'NodeAdd' } } },
  ], 3);
  const { next_wakeup_time_ns: time_ns } = answer;
  console.log(`it backs off: left are ${names(answer.heads)}; next flush at ${time_ns} ns`);

  answer = await apply([{ time_ns, flush_backoff: {} }], 3);
  console.log(`after the flush: ${names(answer.heads)}`);
  for (let pops = 0; pops < 3; pops += 1) {
    answer = await apply([{ time_ns, pop: {} }]);
    console.log(popped(answer));
  }
}

main().catch((error) => {
  console.error(error.message);
  process.exitCode = 3;
});
