// What every service of Reprieve's contract needs, whatever it decides: the messages, sessions
// whose requests are numbered, refusals with google.rpc details, and a server.
'use strict';

const crypto = require('node:crypto');
const path = require('node:path');
const { isDeepStrictEqual, parseArgs } = require('node:util');
const grpc = require('@grpc/grpc-js');
const protoLoader = require('@grpc/proto-loader');

const PROTOS = process.env.PROTOS || path.join(__dirname, '..', '..', '..', 'protos');

// Times are ns since the Unix epoch, more than a Number holds exactly: 64-bit integers are strings
// here, and BigInt(...) where they are compared or added. A field that is `optional` in the proto
// and was not sent is undefined; an absent message is null; every other field has its default.
const LOADING = { keepCase: true, longs: String, enums: String, defaults: true };

const definition = protoLoader.loadSync(
  ['queue/v1beta1/queue_service', 'scheduler/v1beta1/scheduler_service',
    'eviction/v1beta1/eviction_service', 'autoscaler/v1beta1/autoscaler_service'].map((name) => `reprieve/${name}.proto`),
  { ...LOADING, includeDirs: [PROTOS] },
);
/** The packages of the contract, such as `contract.scheduler.v1beta1.SchedulerService`. */
const contract = grpc.loadPackageDefinition(definition).reprieve;
const rpc = protoLoader.loadSync(
  ['google/rpc/error_details.proto', 'google/rpc/status.proto'],
  { ...LOADING, includeDirs: [PROTOS] },
);

/** A request that cannot be taken; thrown before anything is changed. */
class Refusal extends Error {
  /** `reason` is one of the contract's ErrorReasons; `field` the path of a bad field. */
  constructor(code, reason, message, { metadata = {}, field } = {}) {
    super(field ? `${field}: ${message}` : message);
    const details = [['ErrorInfo', { reason, domain: 'reprieve.internal', metadata }]];
    if (field) {
      details.push(['BadRequest', { field_violations: [{ field, description: message }] }]);
    }
    this.code = grpc.status[code];
    this.metadata = new grpc.Metadata();
    this.metadata.set('grpc-status-details-bin', rpc['google.rpc.Status'].serialize({
      code: this.code,
      message: this.message,
      details: details.map(([name, value]) => ({
        type_url: `type.googleapis.com/google.rpc.${name}`,
        value: rpc[`google.rpc.${name}`].serialize(value),
      })),
    }));
  }

  static badField(field, problem) {
    return new Refusal('INVALID_ARGUMENT', 'BAD_FIELD', problem, { field });
  }

  static timeGoesBackwards(atNs, earliestNs) {
    const text = `${atNs} ns lies before the last operation at ${earliestNs} ns`;
    const metadata = { earliest_time_ns: String(earliestNs) };
    return new Refusal('FAILED_PRECONDITION', 'TIME_GOES_BACKWARDS', text, { metadata });
  }
}

const withoutContext = (request) => ({
  ...request, stamp: { ...request.stamp, traceparent: '' },
});

/** The sessions of a service. `core` is whatever the service keeps for one of them. */
class Sessions {
  #sessions = new Map();

  /** Start a session and return its identifier, which nobody can guess. */
  create(core) {
    const name = crypto.randomUUID();
    this.#sessions.set(name, { core, sequence: 0n, busy: false });
    return name;
  }

  /** Forget a session and return its core; undefined where there is none. */
  delete(name) {
    if (!name) throw Refusal.badField('session_id', 'is required');
    const session = this.#sessions.get(name);
    this.#sessions.delete(name);
    return session?.core;
  }

  /**
   * Answer a numbered request: `decide(core)` makes the answer, unless the request is the last one
   * again, whose answer is returned as it was. What `decide` refuses it must not have begun.
   */
  async answer(request, decide) {
    const stamp = request.stamp;
    if (!stamp?.session_id) throw Refusal.badField('stamp.session_id', 'is required');
    const session = this.#sessions.get(stamp.session_id);
    if (!session) {
      throw new Refusal('NOT_FOUND', 'SESSION_EXPIRED', `there is no session ${stamp.session_id}`);
    }
    if (session.broken) {
      const text = 'the session broke half-way through a request: delete it';
      throw new Refusal('FAILED_PRECONDITION', 'SESSION_BROKEN', text);
    }
    if (session.busy) throw new Refusal('ABORTED', 'BUSY', 'another request is being carried out');
    if (stamp.sequence === undefined) throw Refusal.badField('stamp.sequence', 'is required');
    const next = session.sequence + 1n;
    if (BigInt(stamp.sequence) !== next) {
      const metadata = { expected_sequence: String(next) };
      if (BigInt(stamp.sequence) !== session.sequence || !session.answer) {
        const text = `${stamp.sequence} is out of order: ${next} comes next`;
        throw new Refusal('ABORTED', 'SEQUENCE_MISMATCH', text, { metadata });
      }
      if (!isDeepStrictEqual(withoutContext(request), withoutContext(session.request))) {
        const text = `${stamp.sequence} was another request's: ${next} comes next`;
        throw new Refusal('ABORTED', 'SEQUENCE_REUSED', text, { metadata });
      }
      return session.answer;
    }
    session.busy = true;
    try {
      session.answer = { ...await decide(session.core), sequence: stamp.sequence };
      session.request = request;
      session.sequence = next;
      return session.answer;
    } catch (error) {
      session.broken = !(error instanceof Refusal);
      throw error;
    } finally {
      session.busy = false;
    }
  }
}

/** Return what the server sends for an error; one that is no refusal is a fault of the service. */
function statusOf(error) {
  if (error instanceof Refusal) return error;
  console.error(error);
  return new Refusal('INTERNAL', 'INTERNAL', 'an internal error; the service\'s log has it');
}

/** Serve a unary RPC with a function that returns the answer to a request, or throws. */
const unary = (handler) => async (call, reply) => {
  try {
    reply(null, await handler(call.request));
  } catch (error) {
    reply(statusOf(error));
  }
};

/** Serve a stream with it, too: answers in the order of requests, until one is refused. */
const streaming = (handler) => async (call) => {
  try {
    for await (const request of call.iterator({ destroyOnReturn: false })) {
      call.write(await handler(request));
    }
    call.end();
  } catch (error) {
    call.emit('error', statusOf(error));
  }
};

/** Return the command line's options: --listen HOST:PORT and those of `more`. */
const options = (listen, more = {}) => parseArgs({
  options: { listen: { type: 'string', default: listen }, ...more },
}).values;

/** Listen, say so, and end on SIGTERM or Ctrl-C. RPCs without a method answer UNIMPLEMENTED. */
function serve(name, service, methods, listen) {
  const server = new grpc.Server();
  server.addService(service.service, methods);
  server.bindAsync(listen, grpc.ServerCredentials.createInsecure(), (error, port) => {
    if (error) throw error;
    console.log(`${name} listening on ${listen.replace(/:\d+$/, `:${port}`)}`);
  });
  for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => process.exit(0));
}

module.exports = { Refusal, Sessions, contract, grpc, options, serve, streaming, unary };
