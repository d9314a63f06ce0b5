"""What a manifest may say of a replay: how a pod lives, and what befalls a node.

A manifest has no times, so it says them by annotations. A pod, or a controller's template:
`reprieve/service-time` (how long its containers run), `reprieve/exit-code` (what they exit with,
0 where only the time is given), `reprieve/usage-memory` and `reprieve/usage-ephemeral-storage`
(what they use, as replay.world.growth reads it). A node: `reprieve/drain-at`, `reprieve/fail-at`
and `reprieve/recover-at`, counted from when the node comes.
"""

from __future__ import annotations

from collections.abc import Mapping

from replay.world.growth import RESOURCES, Growth, parse_growth
from replay.world.models import duration_ns
from reprieve.trace.v1beta1 import trace_pb2
from services.rpc.errors import FieldError

SERVICE_TIME = "reprieve/service-time"
EXIT_CODE = "reprieve/exit-code"
NODE_ACTIONS: Mapping[str, trace_pb2.NodeActionType.ValueType] = {
    "reprieve/drain-at": trace_pb2.NODE_ACTION_TYPE_DRAIN,
    "reprieve/fail-at": trace_pb2.NODE_ACTION_TYPE_FAIL,
    "reprieve/recover-at": trace_pb2.NODE_ACTION_TYPE_RECOVER,
}
USAGE: Mapping[str, str] = {f"reprieve/usage-{resource}": resource for resource in RESOURCES}
_CODE_MAX = 255


def annotate_life(annotations: Mapping[str, str], life: trace_pb2.PodLife) -> None:
    """Fill in what the trace does not tell of a life. Raises FieldError for what cannot be read."""
    if SERVICE_TIME in annotations and not life.HasField("service_time_ns"):
        life.service_time_ns = _duration_ns(annotations, SERVICE_TIME)
        life.exit_code = 0
    if EXIT_CODE in annotations and not life.fails:
        text = annotations[EXIT_CODE]
        if not (text.isascii() and text.isdigit()) or len(text) > 3 or int(text) > _CODE_MAX:
            problem = f"{text!r} is no exit code; write 0 to {_CODE_MAX}"
            raise FieldError(f"metadata.annotations[{EXIT_CODE}]", problem)
        life.exit_code = int(text)


def annotated_usage(annotations: Mapping[str, str]) -> dict[str, Growth]:
    """Return what a pod's containers use, by resource. Raises FieldError."""
    found = {}
    for name, resource in USAGE.items():
        if name in annotations:
            try:
                found[resource] = parse_growth(annotations[name])
            except ValueError as error:
                raise FieldError(f"metadata.annotations[{name}]", str(error)) from error
    return found


def node_actions(
    annotations: Mapping[str, str],
) -> list[tuple[int, trace_pb2.NodeActionType.ValueType]]:
    """Return what befalls a node and how long after its coming, ns. Raises FieldError."""
    return [
        (_duration_ns(annotations, name), action)
        for name, action in NODE_ACTIONS.items()
        if name in annotations
    ]


def _duration_ns(annotations: Mapping[str, str], name: str) -> int:
    try:
        return duration_ns(annotations[name])
    except ValueError as error:
        raise FieldError(f"metadata.annotations[{name}]", str(error)) from error
