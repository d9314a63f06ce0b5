// A scheduler for Reprieve: each pod goes to the first node that it fits on, with a list of pending
// pods of its own. It places pods and says why others wait; it never preempts.
'use strict';

const { options } = require('../../clients/service-node');
const { Cluster } = require('./cluster');
const { serveSchedulers } = require('./rounds');

const SECOND = 1_000_000_000n;
const LONGEST_BACKOFF = 10n * SECOND;
const MOST_OUTCOMES = 1024;
const MOST_CHARACTERS = 1024 * 1024; // of outcomes as JSON, so that no message exceeds 2 MiB

const priorityOf = (pod) => pod.spec.priority ?? 0;
const earliestOf = (times) => times.reduce((a, b) => (b < a ? b : a));

class FirstFit {
  #cluster = new Cluster();
  #waiting = new Map(); // by uid: the pending pods that no outcome has left behind
  #assumed = new Map(); // by uid: the bindings that were sent and are not answered
  #cycle = 0n;

  run(round) {
    const now = BigInt(round.time_ns);
    for (const answer of round.answers) this.#answered(answer, now);
    for (const event of round.events) this.#take(this.#cluster.take(event), BigInt(event.time_ns));
    if (round.events_only) return {};
    const due = [...this.#waiting.values()].filter((each) => each.ready && each.notBefore <= now);
    // Array.prototype.sort is stable: pods of the same priority and time stay as they came.
    due.sort((a, b) => b.priority - a.priority || Number(a.queued - b.queued));
    const most = Math.min(round.max_pods ?? MOST_OUTCOMES, MOST_OUTCOMES);
    const outcomes = [];
    for (let size = 0; outcomes.length < Math.min(due.length, most) && size < MOST_CHARACTERS;) {
      const outcome = this.#attempt(due[outcomes.length], now);
      outcomes.push(outcome);
      size += JSON.stringify(outcome).length;
    }
    const later = [...this.#waiting.values()].filter((each) => each.ready && each.notBefore > now);
    return {
      outcomes,
      more: due.length > outcomes.length,
      next_wakeup_time_ns: later.length
        ? String(earliestOf(later.map((each) => each.notBefore))) : undefined,
      // Nothing that only says how a pod fares changes a decision here, and nothing at all does
      // while no pod waits.
      may_wait: this.#waiting.size ? 'MAY_WAIT_STATUS' : 'MAY_WAIT_ALL',
    };
  }

  close() {}

  /** Note what became of a binding: a pod that was refused its node is tried again. */
  #answered({ pop, refused }, now) {
    const entry = this.#assumed.get(pop.uid);
    this.#assumed.delete(pop.uid);
    if (!entry || refused !== 'REFUSAL_STAGE_BIND') return;
    this.#take(this.#cluster.release(pop.uid), now);
    const again = this.#waiting.get(pop.uid);
    if (!again) return; // it is being deleted
    this.#waiting.set(pop.uid, { ...entry, ready: true });
  }

  /** Take a change of the cluster at a time. */
  #take(change, at) {
    if (!change) return;
    const { uid, pod, was, is } = change;
    if (is === 'pending' && was !== 'pending') {
      const priority = priorityOf(pod);
      this.#waiting.set(uid, { uid, priority, attempts: 0, first: at, queued: at, notBefore: at,
        ready: true });
    } else if (is === 'pending') {
      const entry = this.#waiting.get(uid);
      entry.priority = priorityOf(pod);
      if (change.isWhole) entry.ready = true; // it may tolerate more now
    } else if (was === 'pending') {
      this.#waiting.delete(uid);
    }
    // A node that came or changed, or a pod that has left its own, may make room.
    if (change.node || (was === 'assigned' && is !== 'assigned')) this.#retry();
  }

  /** Let every pod be tried again after its backoff. */
  #retry() {
    for (const entry of this.#waiting.values()) entry.ready = true;
  }

  #attempt(entry, now) {
    this.#cycle += 1n;
    entry.attempts += 1;
    const decision = this.#cluster.decide(entry.uid);
    const { uid, attempts, first, queued } = entry;
    const backoff = SECOND << BigInt(Math.min(attempts - 1, 4));
    entry.notBefore = now + (backoff < LONGEST_BACKOFF ? backoff : LONGEST_BACKOFF);
    entry.queued = now;
    entry.ready = false;
    if (decision.bind) {
      this.#cluster.assign(uid, decision.bind.node_name);
      this.#waiting.delete(uid);
      this.#assumed.set(uid, entry);
    }
    return {
      pop: { uid, cycle: String(this.#cycle) },
      time_ns: String(now),
      attempts,
      first_enqueued_time_ns: String(first),
      queued_time_ns: String(queued),
      ...decision,
    };
  }
}

const { listen } = options('127.0.0.1:50062');
serveSchedulers('first-fit-node', () => new FirstFit(), listen);
