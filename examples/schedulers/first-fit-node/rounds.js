// A SchedulerService around anything that can run a round: what it is sent is checked here.
'use strict';

const { Refusal, Sessions, contract, serve, streaming, unary } = require(
  '../../clients/service-node',
);
const { requestsOf, roomOf } = require('./cluster');

/** Throw a Refusal where a pod or a node has a quantity that is none. */
function checkQuantities(field, { pod, node }) {
  try {
    if (pod) requestsOf(pod);
    if (node) roomOf(node);
  } catch (error) {
    throw Refusal.badField(`${field}.${pod ? 'pod' : 'node'}`, error.message);
  }
}

function checkEvent(field, { add, update, remove, patch, tick }) {
  const object = add ?? update;
  if (object) {
    const at = `${field}.${add ? 'add' : 'update'}`;
    const kind = Object.keys(object)[0];
    if (!kind) throw Refusal.badField(`${at}.object`, 'is required');
    const { name, uid } = object[kind].metadata ?? {};
    if (!name) throw Refusal.badField(`${at}.${kind}.metadata.name`, 'is required');
    if (kind === 'pod' && !uid) throw Refusal.badField(`${at}.pod.metadata.uid`, 'is required');
    if (kind === 'pod' && !object.pod.spec) throw Refusal.badField(`${at}.pod.spec`, 'is required');
    checkQuantities(at, object);
  } else if (remove) {
    if (!remove.kind) throw Refusal.badField(`${field}.remove.kind`, 'is required');
  } else if (patch) {
    if (!patch.pod?.uid) throw Refusal.badField(`${field}.patch.pod.uid`, 'is required');
  } else if (!tick) {
    throw Refusal.badField(`${field}.event`, 'is required');
  }
}

/** Throw a Refusal where a request cannot be taken; `earliest` is the time of the last round. */
function check({ round, window }, earliest) {
  if (!round) throw Refusal.badField('round', 'is required');
  if (window.length) throw Refusal.badField('window', 'is not served');
  const at = BigInt(round.time_ns);
  if (at < 0n) throw Refusal.badField('round.time_ns', 'lies before the Unix epoch');
  if (at < earliest) throw Refusal.timeGoesBackwards(at, earliest);
  round.answers.forEach((answer, index) => {
    if (!answer.pop?.uid) throw Refusal.badField(`round.answers[${index}].pop.uid`, 'is required');
  });
  let last = 0n;
  round.events.forEach((event, index) => {
    const time = BigInt(event.time_ns);
    if (time < last || time > at) throw Refusal.timeGoesBackwards(time, last);
    last = time;
    checkEvent(`round.events[${index}]`, event);
  });
}

/**
 * Serve schedulers: `open(config)` makes one for a session. Its `run(round)` returns RoundOutcomes,
 * or promises them, and `close()` ends it; its `config` has the settings that it follows, if any.
 */
function serveSchedulers(implementation, open, listen) {
  const sessions = new Sessions();
  const createSession = async ({ config }) => {
    const core = { scheduler: await open(config), earliest: 0n };
    return { session_id: sessions.create(core), config: core.scheduler.config, implementation,
      version: '0.1.0' };
  };
  const deleteSession = async ({ session_id: id }) => {
    await sessions.delete(id)?.scheduler.close();
    return {};
  };
  const runRound = (request) => sessions.answer(request, async (core) => {
    check(request, core.earliest);
    core.earliest = BigInt(request.round.time_ns);
    return { rounds: [await core.scheduler.run(request.round)] };
  });
  serve(implementation, contract.scheduler.v1beta1.SchedulerService, {
    CreateSession: unary(createSession),
    DeleteSession: unary(deleteSession),
    RunRound: unary(runRound),
    StreamingRunRound: streaming(runRound),
  }, listen);
}

module.exports = { serveSchedulers };
