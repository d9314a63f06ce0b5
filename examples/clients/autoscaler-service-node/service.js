// An AutoscalerService for Reprieve: for pods that fit on no node it grows the group that needs the
// fewest nodes for them. It never removes a node.
'use strict';

const {
  Refusal, Sessions, contract, options, serve, streaming, unary,
} = require('../service-node');
const { amounts } = require('../service-node/quantity');

const FULL = 'max node group size reached';

const keyOf = ({ namespace, name }) => (namespace ? `${namespace}/${name}` : name);
const byName = (one, other) => (one.name < other.name ? -1 : 1);

/** Return what a node has for pods, and every pod takes one of `pods`. */
function roomOf({ status }) {
  const { allocatable, capacity } = status ?? {};
  return amounts(Object.keys(allocatable ?? {}).length ? allocatable : capacity);
}

function requestsOf(spec) {
  const sum = { pods: 1 };
  for (const { resources } of spec.containers) {
    for (const [name, amount] of Object.entries(amounts(resources?.requests))) {
      sum[name] = (sum[name] ?? 0) + amount;
    }
  }
  return sum;
}

function tolerates(spec, taint) {
  return spec.tolerations.some(({ key, operator, value, effect }) => (
    (effect === '' || effect === taint.effect)
    && (key === '' || key === taint.key)
    && (operator === 'Exists' || (key !== '' && value === taint.value))
  ));
}

/** A node that is there, is still to come, or would come: its room shrinks with each pod. */
class Place {
  constructor(node) {
    this.labels = node.metadata?.labels ?? {};
    const taints = node.spec?.taints ?? [];
    this.taints = taints.filter(({ effect }) => effect !== 'PreferNoSchedule');
    this.isCordoned = Boolean(node.spec?.unschedulable);
    this.room = roomOf(node);
  }

  /** Return whether a pod fits: taints, node selector and resources. */
  fits(spec) {
    return !this.isCordoned
      && this.taints.every((taint) => tolerates(spec, taint))
      && Object.entries(spec.node_selector).every(([key, value]) => this.labels[key] === value)
      && Object.entries(requestsOf(spec)).every(
        ([name, amount]) => amount === 0 || amount <= (this.room[name] ?? 0),
      );
  }

  take(spec) {
    for (const [name, amount] of Object.entries(requestsOf(spec))) this.room[name] -= amount;
  }
}

/** Put a pod on the first of the places that it fits, and return whether there was one. */
function place({ spec }, places) {
  const found = places.find((each) => each.fits(spec));
  found?.take(spec);
  return Boolean(found);
}

function isWaiting({ spec, status }) {
  return !spec.node_name && (status?.conditions ?? []).some(({ type, reason }) => (
    type === 'PodScheduled' && reason === 'Unschedulable'
  ));
}

const hasEnded = ({ status }) => ['Succeeded', 'Failed'].includes(status?.phase);

class Autoscaler {
  #objects = { pod: new Map(), node: new Map(), daemon_set: new Map() }; // by key
  #groups = new Map(); // by name
  #isStarted = false;
  #at = -(2n ** 62n);
  #waiting = undefined; // the increase that waits for its outcome, with the report so far

  /** Throw a Refusal where a request cannot be carried out, before any of it is. */
  check({ changes, step }) {
    changes.forEach((change, index) => checkChange(change, `changes[${index}]`));
    if (!step) return;
    const { start, outcome, background_work: work, scan, next_part: part, time_ns: at } = step;
    if (!(start || outcome || work || scan || part)) {
      throw Refusal.badField('step.kind', 'is required');
    }
    const outOfOrder = (text) => new Refusal('FAILED_PRECONDITION', 'PRECONDITION', text);
    if (Boolean(outcome) !== Boolean(this.#waiting)) {
      throw outOfOrder(outcome ? 'no call waits for an outcome' : 'a call waits for its outcome');
    }
    if (part) throw outOfOrder('no report has more parts');
    if (Boolean(start) === this.#isStarted) {
      throw outOfOrder(start ? 'the autoscaler has started already' : 'start comes first');
    }
    if (BigInt(at) < this.#at) throw Refusal.timeGoesBackwards(at, this.#at);
  }

  apply({ changes, step }) {
    for (const change of changes) this.#change(change);
    if (!step) return {};
    this.#at = BigInt(step.time_ns);
    this.#isStarted = true;
    if (step.outcome) return this.#ended(step.outcome);
    return step.scan ? this.#scan() : {};
  }

  #change({ object, removed_object: gone, node_group: group, removed_node_group: removed }) {
    if (group) this.#groups.set(group.name, group);
    if (removed !== undefined) this.#groups.delete(removed);
    if (gone) {
      const kind = { Pod: 'pod', Node: 'node', DaemonSet: 'daemon_set' }[gone.object_kind];
      this.#objects[kind]?.delete(keyOf(gone));
    }
    for (const [kind, objects] of Object.entries(this.#objects)) {
      const changed = object?.[kind];
      if (changed) objects.set(keyOf(changed.metadata), changed);
    }
  }

  #scan() {
    const places = this.#places();
    const pods = [...this.#objects.pod].filter(([, pod]) => isWaiting(pod) && !hasEnded(pod))
      .map(([key, { spec }]) => ({ name: key, spec })).sort(byName)
      .filter((pod) => !place(pod, places));
    const report = {
      pods_to_help: pods.map(({ name }) => name),
      scale_up: { result: 'NotNeeded' },
      scale_down: 'NotTried',
    };
    if (!pods.length) return { report: this.#finished(report) };
    const found = [...this.#groups.values()].sort(byName).map((group) => this.#option(group, pods));
    const growing = found.filter(({ count }) => count > 0)
      .sort((one, other) => one.count - other.count);
    if (!growing.length) {
      report.scale_up = { result: 'NoOptionsAvailable', remaining: pods.map(({ name }) => ({
        pod: name,
        rejected_groups: found.filter((it) => it.rejected.includes(name)).map((it) => it.group.name),
        skipped_groups: found.filter((it) => it.isFull)
          .map(({ group }) => ({ group: group.name, reasons: [FULL] })),
      })) };
      return { report: this.#finished(report) };
    }
    this.#waiting = { ...growing[0], report };
    return { call: { increase_size: { group: growing[0].group.name, delta: growing[0].count } } };
  }

  /** Return the nodes that are there and those that were asked for, with the room that is left. */
  #places() {
    const places = [...this.#objects.node.values()].map((node) => {
      const there = new Place(node);
      for (const pod of this.#objects.pod.values()) {
        if (pod.spec.node_name === node.metadata.name && !hasEnded(pod)) there.take(pod.spec);
      }
      return there;
    });
    for (const group of this.#groups.values()) {
      for (let left = this.#upcoming(group); left > 0; left -= 1) places.push(this.#new(group));
    }
    return places;
  }

  #upcoming({ target_size: target, instances }) {
    const ids = new Set(instances.map(({ provider_id: id }) => id));
    const nodes = [...this.#objects.node.values()];
    return Math.max(0, target - nodes.filter(({ spec }) => ids.has(spec?.provider_id)).length);
  }

  /** Return a node of a group, on which each daemon set that suits has a pod. */
  #new({ template }) {
    const made = new Place(template);
    for (const { spec } of this.#objects.daemon_set.values()) place(spec.template, [made]);
    return made;
  }

  /** Return how many nodes of a group its pods need, the largest pods first. */
  #option(group, pods) {
    const most = group.max_size - group.target_size;
    if (most <= 0) return { group, isFull: true, rejected: [], count: 0 };
    const suits = ({ spec }) => this.#new(group).fits(spec);
    const rejected = pods.filter((pod) => !suits(pod)).map(({ name }) => name);
    const cores = ({ spec }) => requestsOf(spec).cpu ?? 0;
    const made = [];
    const helped = [];
    for (const pod of pods.filter(suits).sort((one, other) => cores(other) - cores(one))) {
      if (!place(pod, made)) {
        if (made.length === most) continue;
        made.push(this.#new(group));
        place(pod, made);
      }
      helped.push(pod.name);
    }
    return { group, rejected, helped, count: made.length };
  }

  #ended({ refused }) {
    const { group, count, helped, report } = this.#waiting;
    this.#waiting = undefined;
    const from = group.target_size;
    report.scale_up = refused
      ? { result: 'Error', failed_groups: [group.name] }
      : { result: 'Successful', triggered: helped,
        groups: [{ group: group.name, from_size: from, to_size: from + count }] };
    return { report: this.#finished(report) };
  }

  #finished(report) {
    const upcoming = [...this.#groups.values()].map((group) => [group.name, this.#upcoming(group)]);
    return { ...report, upcoming: Object.fromEntries(upcoming.filter(([, count]) => count)) };
  }
}

function checkChange({ object, removed_object: gone, node_group: group, removed_node_group: removed },
  field) {
  if (!object && !gone && !group && removed === undefined) {
    throw Refusal.badField(`${field}.kind`, 'is required');
  }
  if (removed === '') throw Refusal.badField(`${field}.removed_node_group`, 'is required');
  if (gone && !gone.name) throw Refusal.badField(`${field}.removed_object.name`, 'is required');
  if (!group) return;
  if (!group.name) throw Refusal.badField(`${field}.node_group.name`, 'is required');
  if (!group.template) throw Refusal.badField(`${field}.node_group.template`, 'is required');
  group.instances.forEach(({ state }, index) => {
    if (state !== 'INSTANCE_STATE_UNSPECIFIED') return;
    throw Refusal.badField(`${field}.node_group.instances[${index}].state`, 'is required');
  });
}

const sessions = new Sessions();

const createSession = () => ({ session_id: sessions.create(new Autoscaler()), version: '0.1.0' });

function deleteSession({ session_id: id }) {
  sessions.delete(id);
  return {};
}

const apply = (request) => sessions.answer(request, (autoscaler) => {
  autoscaler.check(request);
  return autoscaler.apply(request);
});

serve('fewest-nodes', contract.autoscaler.v1beta1.AutoscalerService, {
  CreateSession: unary(createSession),
  DeleteSession: unary(deleteSession),
  Apply: unary(apply),
  StreamingApply: streaming(apply),
}, options('127.0.0.1:50074').listen);
