// The first-fit scheduler over Reprieve's scheduling queue: which pod is next, who backs off and
// whom an event moves is the queue's affair, by upstream's rules; which node a pod gets is decided
// here.
'use strict';

const { Refusal, contract, grpc, options } = require('../../clients/service-node');
const { Cluster } = require('../first-fit-node/cluster');
const { serveSchedulers } = require('../first-fit-node/rounds');

const { QueueService } = contract.queue.v1beta1;
const LEFTOVER_TICK = 30_000_000_000n;
const MOST_OPERATIONS = 100; // of a message, so that none comes near 2 MiB with objects in it
const MOST_OUTCOMES = 1024;
const MOST_CHARACTERS = 1024 * 1024; // of outcomes as JSON, so that no message exceeds 2 MiB

const referenceTo = ({ metadata: { uid, name, namespace } }) => ({ uid, name, namespace });

/** A session with the queue: batches of operations go out and their answers come back in order. */
class Queue {
  #client;
  #session;
  #stream;
  #answers;
  #sequence = 0n;

  static async open(address, config) {
    const queue = new Queue();
    queue.#client = new QueueService(address, grpc.credentials.createInsecure());
    queue.#session = (await queue.#call('CreateSession', { config })).session_id;
    queue.#stream = queue.#client.StreamingApply();
    queue.#answers = queue.#stream[Symbol.asyncIterator]();
    return queue;
  }

  /** Carry out operations and return the last answer, with the next `heads`. */
  async apply(operations, heads = 0) {
    let left = operations;
    for (;;) {
      this.#sequence += 1n;
      const stamp = { session_id: this.#session, sequence: String(this.#sequence) };
      this.#stream.write({ stamp, operations: left.slice(0, MOST_OPERATIONS), heads });
      const { value: answer, done } = await this.#answers.next();
      if (done) throw new Error('the queue ended the stream');
      left = left.slice(answer.applied);
      if (!left.length) return answer;
    }
  }

  async close() {
    this.#stream.end();
    // A queue that has gone has forgotten the session, too.
    await this.#call('DeleteSession', { session_id: this.#session }).catch(() => {});
    this.#client.close();
  }

  #call(method, request) {
    return new Promise((resolve, reject) => {
      this.#client[method](request, (error, answer) => (error ? reject(error) : resolve(answer)));
    });
  }
}

class QueueFirstFit {
  #cluster = new Cluster();
  #assumed = new Map(); // by uid: the pops whose bindings were sent and are not answered
  #queue;

  /** `config` has the settings that are followed: those of the queue. */
  constructor(queue, config) {
    this.#queue = queue;
    this.config = config;
  }

  async run(round) {
    const operations = [
      ...round.answers.flatMap((answer) => this.#answered(answer, round.time_ns)),
      ...round.events.flatMap((event) => this.#operationsOf(event)),
    ];
    if (round.events_only) {
      await this.#queue.apply(operations);
      return {};
    }
    const outcomes = [];
    const most = Math.min(round.max_pods ?? MOST_OUTCOMES, MOST_OUTCOMES);
    let next = operations; // what the queue has to hear before the next pod is taken
    for (let size = 0; outcomes.length < most && size < MOST_CHARACTERS;) {
      const { results } = await this.#queue.apply([...next, { time_ns: round.time_ns, pop: {} }]);
      const popped = results.at(-1).popped; // null: nothing to pop
      next = [];
      if (!popped) break;
      const outcome = this.#attempt(popped, round.time_ns);
      outcomes.push(outcome);
      size += JSON.stringify(outcome).length;
      if (outcome.unschedulable) {
        const { unschedulable_plugins } = outcome.unschedulable;
        const failure = { unschedulable_plugins };
        next = [{ time_ns: round.time_ns, add_unschedulable: { pop: popped.pop, failure } }];
      }
    }
    const answer = await this.#queue.apply(next, 1);
    return { outcomes, more: answer.heads.length > 0, next_wakeup_time_ns: answer.next_wakeup_time_ns };
  }

  close() {
    return this.#queue.close();
  }

  /** Return what the queue has to hear of an outcome that was carried out, or was not. */
  #answered({ pop, refused }, time_ns) {
    if (!this.#assumed.delete(pop.uid)) return [];
    const pod = this.#cluster.pod(pop.uid);
    if (!pod) return [{ time_ns, done: pop }];
    if (refused !== 'REFUSAL_STAGE_BIND') {
      return [{ time_ns, done: pop }, { time_ns, assigned_pod_add: { pod } }];
    }
    this.#cluster.release(pop.uid);
    const freed = { label: 'AssignedPodDelete', old_object: { pod } };
    return [
      { time_ns, add_unschedulable: { pop, failure: { error: true } } },
      { time_ns, move: { event: freed, all_but: referenceTo(pod) } },
    ];
  }

  /** Take an event, and return what the queue has to hear of it. */
  #operationsOf(event) {
    const { time_ns } = event;
    if (event.tick) {
      const leftover = BigInt(time_ns) % LEFTOVER_TICK === 0n ? [{ time_ns, flush_leftover: {} }] : [];
      return [{ time_ns, flush_backoff: {} }, ...leftover];
    }
    const change = this.#cluster.take(event);
    if (!change) return [];
    const { node, pod, old, was, is } = change;
    if (node) {
      // To a pod that waits, a node that has changed is as good as one that has come.
      return [{ time_ns, move: { event: { label: 'NodeAdd', new_object: { node } } } }];
    }
    const operations = [];
    if (was === 'pending') {
      operations.push(is === 'pending'
        ? { time_ns, update: { old_pod: old, pod } } : { time_ns, delete_pod: referenceTo(old) });
    } else if (is === 'pending') {
      operations.push({ time_ns, add: { pod } });
    }
    if (is === 'assigned' && was !== 'assigned') {
      operations.push({ time_ns, assigned_pod_add: { pod } });
    } else if (was === 'assigned' && is !== 'assigned') {
      const freed = { label: 'AssignedPodDelete', old_object: { pod: old } };
      operations.push({ time_ns, move: { event: freed } });
    }
    return operations;
  }

  #attempt({ pop, attempts, first_enqueued_time_ns, queued_time_ns }, time_ns) {
    const decision = this.#cluster.decide(pop.uid);
    if (decision.bind) {
      this.#cluster.assign(pop.uid, decision.bind.node_name);
      this.#assumed.set(pop.uid, pop);
    }
    return { pop, time_ns, attempts, first_enqueued_time_ns, queued_time_ns, ...decision };
  }
}

const { listen, queue: address } = options('127.0.0.1:50063', {
  queue: { type: 'string', default: '127.0.0.1:50051' },
});

async function open(config) {
  try {
    const queue = await Queue.open(address, config?.queue);
    return new QueueFirstFit(queue, { queue: config?.queue });
  } catch (error) {
    if (error.code === grpc.status.INVALID_ARGUMENT) {
      throw Refusal.badField('config.queue', error.details);
    }
    throw new Refusal('UNAVAILABLE', 'UNAVAILABLE', `the queue at ${address}: ${error.message}`);
  }
}

serveSchedulers('queue-node', open, listen);
