// An extender of Reprieve's scheduler, over gRPC: nodes that a label reserves for one app.
//
//   filter      a node whose label names another app than the pod's is not for it
//   prioritize  among the others, those whose label names the pod's app are best
//   preempt     no pod with the label "precious" is ever a victim
//   bind        says yes; the cluster (or the replay) carries it out
'use strict';

const path = require('node:path');
const grpc = require('@grpc/grpc-js');
const protoLoader = require('@grpc/proto-loader');

const PROTOS = process.env.PROTOS || path.join(__dirname, '..', '..', 'protos');
const LABEL = 'example.com/reserved-for';
const PRECIOUS = 'example.com/precious';

const definition = protoLoader.loadSync(
  'reprieve/scheduler/v1beta1/extender_service.proto',
  { includeDirs: [PROTOS], keepCase: true, longs: Number, defaults: true },
);
const { ExtenderService } = grpc.loadPackageDefinition(definition).reprieve.scheduler.v1beta1;

const labelsOf = (object) => (object.metadata && object.metadata.labels) || {};
const appOf = (pod) => labelsOf(pod).app || '';

function filter({ request }, reply) {
  const answer = { node_names: [], failed_nodes: {}, failed_and_unresolvable_nodes: {} };
  for (const node of request.nodes) {
    const owner = labelsOf(node)[LABEL];
    if (owner === undefined || owner === appOf(request.pod)) {
      answer.node_names.push(node.metadata.name);
    } else {
      answer.failed_and_unresolvable_nodes[node.metadata.name] = `node(s) are reserved for ${owner}`;
    }
  }
  reply(null, answer);
}

function prioritize({ request }, reply) {
  const scores = request.nodes.map((node) => ({
    node_name: node.metadata.name,
    score: labelsOf(node)[LABEL] === appOf(request.pod) ? 10 : 0,
  }));
  reply(null, { scores });
}

function processPreemption({ request }, reply) {
  const spared = (candidate) => candidate.pods.every((pod) => !(PRECIOUS in labelsOf(pod)));
  const candidates = request.candidates.filter(spared).map((candidate) => ({
    node_name: candidate.node_name,
    victims: candidate.victims,
    budget_violations: candidate.budget_violations,
  }));
  reply(null, { candidates });
}

const bind = (_call, reply) => reply(null, {});

const server = new grpc.Server();
server.addService(ExtenderService.service, {
  Filter: filter,
  Prioritize: prioritize,
  ProcessPreemption: processPreemption,
  Bind: bind,
});
const address = process.argv[2] || '127.0.0.1:50071';
server.bindAsync(address, grpc.ServerCredentials.createInsecure(), (error, port) => {
  if (error) throw error;
  console.log(`extender listening on ${address.replace(/:\d+$/, `:${port}`)}`);
});
process.on('SIGTERM', () => server.tryShutdown(() => process.exit(0)));
