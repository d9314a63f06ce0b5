// The cluster as a scheduler sees it: nodes, the pods on them, and which node is the first to fit.
'use strict';

const { amounts } = require('../../clients/service-node/quantity');

/** Add `more` to `sum`, by resource name. */
function add(sum, more) {
  for (const [name, amount] of Object.entries(more)) sum[name] = (sum[name] ?? 0) + amount;
  return sum;
}

/** Raise `most` to `other` where that is more, by resource name. */
function raise(most, other) {
  for (const [name, amount] of Object.entries(other)) {
    most[name] = Math.max(most[name] ?? 0, amount);
  }
  return most;
}

/** Return what a pod asks for: its containers together or the largest moment of its start. */
function requestsOf({ spec }) {
  const asked = (container) => amounts(container.resources?.requests);
  const running = spec.containers.map(asked).reduce(add, {});
  const sidecars = {};
  const starting = {};
  for (const container of spec.init_containers) {
    if (container.restart_policy === 'Always') {
      add(running, asked(container));
      add(sidecars, asked(container));
      raise(starting, sidecars);
    } else {
      raise(starting, add({ ...sidecars }, asked(container)));
    }
  }
  const whole = { ...raise(running, starting), ...amounts(spec.resources?.requests) };
  return add(whole, amounts(spec.overhead));
}

/** Return what a node has for pods. */
function roomOf({ status }) {
  const { allocatable, capacity } = status ?? {};
  return amounts(Object.keys(allocatable ?? {}).length ? allocatable : capacity);
}

function tolerates(pod, taint) {
  return pod.spec.tolerations.some(({ key, operator, value, effect }) => (
    (effect === '' || effect === taint.effect)
    && (key === '' || key === taint.key)
    && (operator === 'Exists' || (key !== '' && value === taint.value))
  ));
}

/** Return whether labels, or fields, meet a condition of node affinity. */
function meets({ key, operator, values }, labels) {
  const value = labels[key];
  switch (operator) {
    case 'In': return values.includes(value);
    case 'NotIn': return !values.includes(value);
    case 'Exists': return value !== undefined;
    case 'DoesNotExist': return value === undefined;
    case 'Gt': return value !== undefined && Number(value) > Number(values[0]);
    case 'Lt': return value !== undefined && Number(value) < Number(values[0]);
    default: return false;
  }
}

/** Return whether a node is one that the pod's node affinity requires: by a label or its name. */
function matchesAffinity(node, { spec }) {
  const affinity = spec.affinity?.node_affinity;
  const required = affinity?.required_during_scheduling_ignored_during_execution;
  if (!required) return true;
  const fields = { 'metadata.name': node.name };
  return required.node_selector_terms.some((term) => (
    term.match_expressions.length + term.match_fields.length > 0
    && term.match_expressions.every((condition) => meets(condition, node.labels))
    && term.match_fields.every((condition) => meets(condition, fields))
  ));
}

/** Return the ports of the node that a pod takes: those of its containers and sidecars. */
function hostPortsOf({ spec }) {
  const sidecars = spec.init_containers.filter((it) => it.restart_policy === 'Always');
  return [...spec.containers, ...sidecars].flatMap(({ ports }) => ports)
    .filter((port) => port.host_port)
    .map((port) => ({
      address: port.host_ip || '0.0.0.0', protocol: port.protocol || 'TCP', number: port.host_port,
    }));
}

function isSame(port, other) {
  return port.number === other.number && port.protocol === other.protocol
    && port.address === other.address;
}

/** Return whether two ports overlap: the address 0.0.0.0 stands for all. */
function conflicts(port, other) {
  const isEvery = [port.address, other.address].includes('0.0.0.0');
  return isSame({ ...port, address: isEvery ? other.address : port.address }, other);
}

const CORDON = { key: 'node.kubernetes.io/unschedulable', value: '', effect: 'NoSchedule' };

// Upstream's plugins in upstream's order and words: each returns why a pod may not run on a node.
const FILTERS = {
  NodeUnschedulable: (node, pod) => (
    node.unschedulable && !tolerates(pod, CORDON) ? ['node(s) were unschedulable'] : []
  ),
  TaintToleration: (node, pod) => {
    const taint = node.taints.find((each) => !tolerates(pod, each));
    return taint ? [`node(s) had untolerated taint {${taint.key}: ${taint.value}}`] : [];
  },
  NodeAffinity: (node, pod) => {
    const fits = Object.entries(pod.spec.node_selector).every(
      ([key, value]) => node.labels[key] === value,
    );
    return fits && matchesAffinity(node, pod) ? [] : ["node(s) didn't match Pod's node affinity/selector"];
  },
  NodePorts: (node, pod) => {
    const isHeld = hostPortsOf(pod).some((port) => (
      node.ports.some((other) => conflicts(port, other))
    ));
    return isHeld ? ["node(s) didn't have free ports for the requested pod ports"] : [];
  },
  NodeResourcesFit: (node, pod, requests) => {
    const reasons = node.pods + 1 > (node.room.pods ?? 0) ? ['Too many pods'] : [];
    for (const [name, amount] of Object.entries(requests)) {
      if (amount > 0 && amount > (node.room[name] ?? 0) - (node.used[name] ?? 0)) {
        reasons.push(`Insufficient ${name}`);
      }
    }
    return reasons;
  },
};

/** Where a pod stands for a scheduler: "pending", "assigned", "ended", or "ignored". */
function standing(record) {
  if (!record) return 'ended';
  const { spec, status, metadata } = record.pod;
  if (['Succeeded', 'Failed'].includes(status?.phase)) return 'ended';
  if (record.node) return 'assigned';
  const isOurs = ['', 'default-scheduler'].includes(spec.scheduler_name);
  const waits = metadata.deletion_timestamp || spec.scheduling_gates.length;
  return isOurs && !waits ? 'pending' : 'ignored';
}

class Cluster {
  #nodes = new Map(); // by name
  #pods = new Map(); // by uid: { pod, requests, node }; `node` is bound, or assumed to be

  /**
   * Take an event. Returns what it changed for pods that wait: of a node `{ node, old }`, of a pod
   * `{ uid, was, is, pod, old, isWhole }`, where `was` and `is` are its standings, and `isWhole`
   * is true where more than its status may have changed; null where nothing did.
   */
  take(event) {
    const object = event.add ?? event.update;
    if (object?.node) return this.#putNode(object.node);
    if (object?.pod) return this.#putPod(object.pod);
    if (event.patch) {
      const record = this.#pods.get(event.patch.pod.uid);
      if (!record) return null;
      const pod = patched(record.pod, event.patch);
      const node = pod.spec.node_name || record.node;
      return this.#replace(pod.metadata.uid, { ...record, pod, node });
    }
    if (event.remove?.kind === 'Pod') return this.#replace(event.remove.uid, null);
    if (event.remove?.kind === 'Node') this.#nodes.delete(event.remove.name);
    return null; // another kind of object, or a tick
  }

  /** Assume that a pod is on a node, until the world says otherwise. */
  assign(uid, node) {
    const { pod, requests } = this.#pods.get(uid);
    this.#replace(uid, { pod, requests, node });
  }

  /** Take back an assumption. Returns the change, as `take` does. */
  release(uid) {
    const record = this.#pods.get(uid);
    return record ? this.#replace(uid, { ...record, node: '' }) : null;
  }

  pod(uid) {
    return this.#pods.get(uid)?.pod;
  }

  /** Return the outcome for a pending pod: the first node that fits it, or why none does. */
  decide(uid) {
    const { pod, requests } = this.#pods.get(uid);
    const reasons = new Map();
    const plugins = new Set();
    let evaluated = 0;
    for (const node of this.#nodes.values()) {
      evaluated += 1;
      const refusal = refusalOf(node, pod, requests);
      if (!refusal) {
        return { bind: { node_name: node.name, evaluated_nodes: evaluated,
          feasible_nodes: 1, tied_nodes: 1 } };
      }
      plugins.add(refusal.plugin);
      for (const reason of refusal.reasons) reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
    }
    const counted = [...reasons].map(([reason, nodes]) => `${nodes} ${reason}`).sort();
    return { unschedulable: {
      message: evaluated ? `0/${evaluated} nodes are available: ${counted.join(', ')}.`
        : 'no nodes available to schedule pods',
      unschedulable_plugins: [...plugins].sort(),
      reasons: [...reasons].map(([reason, nodes]) => ({ reason, nodes }))
        .sort((a, b) => b.nodes - a.nodes),
    } };
  }

  #putNode(node) {
    const { name, labels } = node.metadata;
    const old = this.#nodes.get(name);
    this.#nodes.set(name, {
      name,
      labels,
      message: node,
      unschedulable: node.spec?.unschedulable,
      taints: (node.spec?.taints ?? []).filter((each) => each.effect !== 'PreferNoSchedule'),
      room: roomOf(node),
      used: {},
      pods: 0,
      ports: [],
    });
    for (const record of this.#pods.values()) if (record.node === name) this.#count(record, 1);
    return { node, old: old?.message ?? null };
  }

  #putPod(pod) {
    const { uid } = pod.metadata;
    const old = this.#pods.get(uid);
    const node = pod.spec.node_name || old?.node || '';
    return { ...this.#replace(uid, { pod, node, requests: requestsOf(pod) }), isWhole: true };
  }

  #replace(uid, record) {
    const old = this.#pods.get(uid);
    if (old) this.#count(old, -1);
    if (record) {
      this.#pods.set(uid, record);
      this.#count(record, 1);
    } else {
      this.#pods.delete(uid);
    }
    const change = { uid, was: standing(old), is: standing(record) };
    return { ...change, pod: record?.pod ?? null, old: old?.pod ?? null };
  }

  #count(record, sign) {
    const node = this.#nodes.get(record.node);
    if (!node || standing(record) !== 'assigned') return;
    node.pods += sign;
    for (const port of hostPortsOf(record.pod)) {
      if (sign > 0) node.ports.push(port);
      else node.ports.splice(node.ports.findIndex((other) => isSame(port, other)), 1);
    }
    for (const [name, amount] of Object.entries(record.requests)) {
      node.used[name] = (node.used[name] ?? 0) + sign * amount;
    }
  }
}

function refusalOf(node, pod, requests) {
  for (const [plugin, filter] of Object.entries(FILTERS)) {
    const reasons = filter(node, pod, requests);
    if (reasons.length) return { plugin, reasons };
  }
  return null;
}

function patched(pod, patch) {
  const { metadata, spec, status } = pod;
  return {
    metadata: {
      ...metadata,
      deletion_timestamp: patch.deletion_time_ns === undefined ? metadata.deletion_timestamp : {},
    },
    spec: { ...spec, node_name: patch.node_name ?? spec.node_name },
    status: patch.status ?? status,
  };
}

module.exports = { Cluster, requestsOf, roomOf };
