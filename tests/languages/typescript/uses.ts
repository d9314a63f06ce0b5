// What a program does with the generated code: messages, oneofs, optional fields and services.
import { create } from "@bufbuild/protobuf";
import { OperationSchema } from "./gen/ts/reprieve/queue/v1beta1/queue_pb";
import { ApplyRequestSchema, QueueService } from "./gen/ts/reprieve/queue/v1beta1/queue_service_pb";

const operation = create(OperationSchema, {
  timeNs: 1_700_000_000_000_000_001n,
  operation: { case: "deletePod", value: { uid: "uid-a", name: "a" } },
});
const request = create(ApplyRequestSchema, { stamp: { sequence: 1n }, operations: [operation] });
const sequence: bigint | undefined = request.stamp?.sequence;
export const applied: [string, bigint | undefined] = [QueueService.method.apply.name, sequence];
