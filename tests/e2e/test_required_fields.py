"""A request without a required field is refused by the field's path, whichever it is.

The requests follow from the contract: every method of all services, and every field below its
request that has the option REQUIRED. They have a session, and times.
"""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from replay.backends.processes import EmbeddedServices
from reprieve.autoscaler.v1beta1 import autoscaler_service_pb2
from reprieve.eviction.v1beta1 import eviction_service_pb2
from reprieve.queue.v1beta1 import queue_service_pb2
from reprieve.scheduler.v1beta1 import scheduler_service_pb2
from tests.e2e.test_scheduler_service import field_of
from tests.required_fields import incomplete

pytestmark = pytest.mark.e2e
SERVICES = {
    "autoscaler": autoscaler_service_pb2.DESCRIPTOR.services_by_name["AutoscalerService"],
    "queue": queue_service_pb2.DESCRIPTOR.services_by_name["QueueService"],
    "scheduler": scheduler_service_pb2.DESCRIPTOR.services_by_name["SchedulerService"],
    "eviction": eviction_service_pb2.DESCRIPTOR.services_by_name["EvictionService"],
}


def refused_field(channel: grpc.Channel, method: MethodDescriptor, request: bytes) -> str:
    """Call a method with one request; return the field that its refusal names.

    On the wire a unary call is a stream of one message.
    """
    call: Any = channel.stream_stream(f"/{method.containing_service.full_name}/{method.name}")
    with pytest.raises(grpc.RpcError) as caught:
        list(call(iter([request]), timeout=20))
    error: Any = caught.value
    if error.code() is not grpc.StatusCode.INVALID_ARGUMENT:
        return f"{error.code()}: {error.details()}"
    assert error.details().endswith(": is required")
    return str(field_of(error))


def session_of(channel: grpc.Channel, service: ServiceDescriptor) -> str:
    """Return a new session of a service."""
    create = service.methods_by_name["CreateSession"]
    answer = GetMessageClass(create.output_type)
    call: Any = channel.unary_unary(
        f"/{service.full_name}/CreateSession", response_deserializer=answer.FromString
    )
    return str(call(b"", timeout=20).session_id)


def make_valid(message: Any, session: str) -> None:
    """Set the session and the times in a message, where it has these parts."""
    fields = message.DESCRIPTOR.fields_by_name
    if "time_ns" in fields:
        message.time_ns = 1
    if "session_id" in fields and message.session_id:
        message.session_id = session
    if "sequence" in fields:
        message.sequence = 1
    for field, value in message.ListFields():
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for part in value if field.is_repeated else (value,):
                make_valid(part, session)


@pytest.mark.parametrize("service", SERVICES)
def test_every_required_field_of_every_request(services: EmbeddedServices, service: str) -> None:
    """It is named, in unary calls and in streams."""
    wrong, checked = [], 0
    described = SERVICES[service]
    with grpc.insecure_channel(services.addresses[service]) as channel:
        session = session_of(channel, described)
        for method in described.methods:
            for path, request in incomplete(method.input_type):
                make_valid(request, session)
                field = refused_field(channel, method, request.SerializeToString())
                checked += 1
                if field != path:
                    wrong.append(f"{method.name}: {path} is refused as {field}")
    assert checked >= len(described.methods)
    assert "\n".join(wrong) == ""
