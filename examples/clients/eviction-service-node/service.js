// An EvictionService for Reprieve: where a node's memory runs low it evicts the pod of the lowest
// priority, and of several the one that uses most. (A kubelet looks first at who exceeds its
// requests.)
'use strict';

const {
  Refusal, Sessions, contract, options, serve, streaming, unary,
} = require('../service-node');
const { quantity } = require('../service-node/quantity');

const SIGNAL = 'memory.available';
const FIXED = '100Mi'; // where the session's configuration says nothing of the signal
const INTERVAL = 10_000_000_000n;
const CRITICAL = 2_000_000_000; // pods of the system, which are never evicted

const referenceTo = ({ metadata: { uid, name, namespace } }) => ({ uid, name, namespace });
const priorityOf = (pod) => pod.spec?.priority ?? 0;
const asksForMemory = (pod) => (pod.spec?.containers ?? []).some(({ resources }) => (
  ['requests', 'limits'].some((kind) => 'memory' in (resources?.[kind] ?? {}))
));

/** Return the threshold of a configuration. */
function thresholdOf(config, field) {
  const text = config?.hard[SIGNAL] ?? FIXED;
  try {
    return { bytes: quantity(text), shown: { signal: SIGNAL, quantity: text,
      text: `${SIGNAL}<${text}` } };
  } catch (error) {
    throw Refusal.badField(`${field}.hard`, error.message);
  }
}

class Node {
  at = 0n;
  pods = new Map(); // by uid: those of the last step
  hasPressure = undefined; // not known before the first step
}

class Nodes {
  #nodes = new Map(); // by name
  #own = new Map(); // by name: thresholds of nodes that have their own
  #threshold;

  constructor(threshold) {
    this.#threshold = threshold;
  }

  /** Throw a Refusal where one of the operations cannot be carried out, before any of them is. */
  check(operations) {
    const times = new Map();
    const known = new Set([...this.#nodes.keys(), ...this.#own.keys()]);
    operations.forEach(({ step, resume, remove_node: removed, configure, admit }, index) => {
      const field = `operations[${index}]`;
      const content = step ?? resume ?? configure ?? admit;
      if (removed !== undefined) {
        known.delete(removed);
        times.set(removed, 0n);
        return;
      }
      if (!content) throw Refusal.badField(`${field}.operation`, 'is required');
      const kind = Object.keys(operations[index])[0];
      const name = content.node_name;
      if (!name) throw Refusal.badField(`${field}.${kind}.node_name`, 'is required');
      if (resume) {
        const text = `no step of ${name} waits: this service never asks a node to collect garbage`;
        throw new Refusal('FAILED_PRECONDITION', 'PRECONDITION', text);
      }
      if (configure) thresholdOf(configure.config, `${field}.configure.config`);
      if (admit && !admit.pod?.metadata?.uid) {
        throw Refusal.badField(`${field}.admit.pod`, 'is required, with its uid');
      }
      if (admit && !known.has(name)) {
        throw new Refusal('NOT_FOUND', 'NOT_FOUND', `no node ${name} is known`);
      }
      if (step) {
        const earliest = times.get(name) ?? this.#nodes.get(name)?.at ?? 0n;
        if (BigInt(step.time_ns) < earliest) throw Refusal.timeGoesBackwards(step.time_ns, earliest);
        times.set(name, BigInt(step.time_ns));
        step.pods.forEach((pod, place) => {
          if (pod.metadata?.uid) return;
          throw Refusal.badField(`${field}.step.pods[${place}].metadata.uid`, 'is required');
        });
      }
      known.add(name);
    });
  }

  /** Carry out one operation and return its results: one, or none for a node that has gone. */
  apply({ step, remove_node: removed, configure, admit }) {
    if (step) return [{ node_name: step.node_name, step: this.#step(step) }];
    if (admit) return [{ node_name: admit.node_name, admission: this.#admission(admit) }];
    if (configure) {
      const threshold = thresholdOf(configure.config, 'config');
      this.#own.set(configure.node_name, threshold);
      return [{ node_name: configure.node_name, configured: { thresholds: [threshold.shown] } }];
    }
    this.#nodes.delete(removed);
    this.#own.delete(removed);
    return [];
  }

  #step({ node_name: name, time_ns, observations, pods, active_uids: uids }) {
    const node = this.#nodes.get(name) ?? new Node();
    this.#nodes.set(name, node);
    // A pod that was sent in the step before may come as its uid alone.
    const before = uids.map((uid) => node.pods.get(uid)).filter(Boolean);
    node.pods = new Map([...pods, ...before].map((pod) => [pod.metadata.uid, pod]));
    node.at = BigInt(time_ns);
    const threshold = this.#own.get(name) ?? this.#threshold;
    const memory = observations?.memory;
    const available = memory?.available_bytes;
    const hasPressure = available !== undefined && Number(available) < threshold.bytes;
    const result = { next_step_time_ns: String(node.at + INTERVAL) };
    if (hasPressure) {
      result.thresholds_met = [threshold.shown];
      result.evictions = evictions(node, observations, threshold);
    }
    // Quiet: nothing changes here while the node observes the same.
    result.quiet = hasPressure === node.hasPressure && !result.evictions?.length;
    node.hasPressure = hasPressure;
    if (!result.quiet) result.conditions = conditions(hasPressure);
    return result;
  }

  /** As a kubelet has it: under memory pressure a node takes no pod of the class BestEffort. */
  #admission({ node_name: name, pod }) {
    const takes = !this.#nodes.get(name)?.hasPressure
      || priorityOf(pod) >= CRITICAL || asksForMemory(pod);
    return takes ? { admit: true } : { admit: false, reason: 'Evicted',
      message: 'The node had condition: [MemoryPressure]. ' };
  }
}

/** Return the pod to be killed, in a list; none where only critical pods are left. */
function evictions(node, { memory, pods }, threshold) {
  const used = new Map(pods.map((each) => [each.pod.uid, Number(each.memory_working_set_bytes)]));
  const usageOf = (pod) => used.get(pod.metadata.uid) ?? 0;
  const ranked = [...node.pods.values()].filter((pod) => priorityOf(pod) < CRITICAL).sort(
    (a, b) => priorityOf(a) - priorityOf(b) || usageOf(b) - usageOf(a),
  );
  const available = Number(memory.available_bytes);
  const message = 'The node was low on resource: memory. Threshold quantity: '
    + `${threshold.shown.quantity}, available: ${Math.floor(available / 1024)}Ki. `;
  return ranked.slice(0, 1).map((pod) => ({
    pod: referenceTo(pod),
    grace_period_override_duration_ns: '1000000000',
    message,
    reason: 'Evicted',
    phase: 'Failed',
    condition: { type: 'DisruptionTarget', status: 'True', reason: 'TerminationByKubelet',
      message },
    signal: SIGNAL,
    threshold: threshold.shown.text,
    available,
    capacity: available + Number(memory.working_set_bytes ?? 0),
    rank: 1,
    ranked_pods: ranked.length,
  }));
}

function conditions(hasPressure) {
  const memory = hasPressure
    ? { status: 'True', reason: 'KubeletHasInsufficientMemory',
      message: 'kubelet has insufficient memory available' }
    : { status: 'False', reason: 'KubeletHasSufficientMemory',
      message: 'kubelet has sufficient memory available' };
  return [
    { type: 'MemoryPressure', ...memory },
    { type: 'DiskPressure', status: 'False', reason: 'KubeletHasNoDiskPressure',
      message: 'kubelet has no disk pressure' },
    { type: 'PIDPressure', status: 'False', reason: 'KubeletHasSufficientPID',
      message: 'kubelet has sufficient PID available' },
  ];
}

const sessions = new Sessions();

function createSession({ config }) {
  const threshold = thresholdOf(config, 'config');
  const warnings = [`of all thresholds only the hard one of ${SIGNAL} is served`];
  return { session_id: sessions.create(new Nodes(threshold)), config, thresholds: [threshold.shown],
    warnings, version: '0.1.0' };
}

function deleteSession({ session_id: id }) {
  sessions.delete(id);
  return {};
}

const apply = (request) => sessions.answer(request, (nodes) => {
  const { operations } = request;
  nodes.check(operations);
  const results = operations.flatMap((operation) => nodes.apply(operation));
  return { applied: operations.length, results };
});

serve('lowest-priority-first', contract.eviction.v1beta1.EvictionService, {
  CreateSession: unary(createSession),
  DeleteSession: unary(deleteSession),
  Apply: unary(apply),
  StreamingApply: streaming(apply),
}, options('127.0.0.1:50065').listen);
