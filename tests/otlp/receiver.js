// Receives OTLP over gRPC and HTTP on free ports of a host (the first argument, or 127.0.0.1). Writes
// its two addresses as a line of JSON, and then each request as another.
const {MockOtlpServer} = require('@elastic/mockotlpserver');
const normalize = require('@elastic/mockotlpserver/lib/normalize');

const host = process.argv[2] || '127.0.0.1';
const write = (object) => process.stdout.write(JSON.stringify(object) + '\n');
const server = new MockOtlpServer({
  logLevel: 'warn',
  services: ['grpc', 'http'],
  grpcHostname: host,
  grpcPort: 0,
  httpHostname: host,
  httpPort: 0,
  onTrace: (request) => write(normalize.normalizeTrace(request)),
  onMetrics: (request) => write(normalize.normalizeMetrics(request)),
  onLogs: (request) => write(normalize.normalizeLogs(request)),
});
server.start().then(
  () => write({grpc: server.grpcUrl.origin, http: server.httpUrl.origin}),
  (error) => {
    console.error(error.message);
    process.exit(1);
  },
);
