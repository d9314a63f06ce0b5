"""Steps and what else is done to nodes, message to value."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from reprieve.eviction.v1alpha1 import eviction_pb2, eviction_service_pb2
from services.eviction.codec.pods import pod_from_message
from services.eviction.codec.statistics import node_summary, pod_usage
from services.eviction.core.observations import NodeSummary
from services.eviction.fleet import Forget, Operation, Resume, Seen, Step
from services.rpc.errors import FieldError

Clock = Callable[[], int]


def step_from_message(
    message: eviction_service_pb2.Step, *, field: str, clock: Clock | None = None
) -> Step:
    """Return the step; `field` is its path. In a live session `clock` dates a step without a time.

    Raises FieldError.
    """
    pods = tuple(
        pod_from_message(each, field=f"{field}.pods[{index}]")
        for index, each in enumerate(message.pods)
    )
    if not message.summary_failed and not message.HasField("observations"):
        raise FieldError(f"{field}.observations", "is required, but with summary_failed")
    return Step(
        field=field,
        node_name=required_node(message.node_name, field),
        now_ns=clock() if clock and not message.at_ns else message.at_ns,
        seen=None if message.summary_failed else _seen(message.observations, field),
        pods=pods,
        active_uids=tuple(message.active_uids),
        disk_info_failed=message.disk_info_failed,
        kill_fails=message.kill_fails,
    )


def resume_from_message(message: eviction_service_pb2.ResumeStep, *, field: str) -> Resume:
    """Return the continuation; `field` is its path. Raises FieldError."""
    seen = _seen(message.observations, field) if message.HasField("observations") else None
    return Resume(node_name=required_node(message.node_name, field), seen=seen)


def operation_from_message(
    message: eviction_service_pb2.NodeOperation, *, field: str, clock: Clock | None
) -> Operation:
    """Return one operation of a batch; `field` is its path. Raises FieldError."""
    match message.WhichOneof("operation"):
        case "step":
            return step_from_message(message.step, field=f"{field}.step", clock=clock)
        case "resume":
            return resume_from_message(message.resume, field=f"{field}.resume")
        case "forget":
            if not message.forget:
                raise FieldError(f"{field}.forget", "is required: it names the node")
            return Forget(node_name=message.forget)
        case _:
            raise FieldError(field, "is empty: set step, resume or forget")


def required_node(name: str, field: str) -> str:
    """Return a node's name; FieldError where `field` lacks it."""
    if not name:
        path = f"{field}.node_name" if field else "node_name"
        raise FieldError(path, "is required")
    return name


def _seen(message: eviction_pb2.Observations, field: str) -> Seen:
    path = f"{field}.observations"
    summary: NodeSummary = node_summary(message, field=path)
    return Seen(summary=summary, usage=partial(pod_usage, message))
