"""The node groups of a replay, made complete by its trace before anything is started."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from replay.autoscaling.errors import GroupsError
from replay.autoscaling.file import AutoscalerFile, autoscaling, read, written
from replay.autoscaling.observed import ObservedNodes, fixed, with_templates
from reprieve.trace.v1beta1 import trace_pb2

INFER = "infer"
"""The value of --autoscaler for the groups that the trace shows."""
_CLAIMS = (
    "pod {} claims devices, which are not simulated: a scale-up would be decided without them; "
    "leave --autoscaler out, or the pod"
)


def resolved(text: str, records: Iterable[trace_pb2.Record]) -> tuple[str, Sequence[str]]:
    """Return a complete file of node groups, and what people should know of it, a sentence each.

    text: of a file, or INFER. Raises GroupsError.
    """
    file = None if text == INFER else read(text)
    observed = ObservedNodes()
    for record in records:
        observed.add(record)
    if observed.claiming:
        raise GroupsError(_CLAIMS.format(observed.claiming))
    warnings = []
    if file is None:
        file = AutoscalerFile(groups=observed.groups())
        if names := fixed(file.groups):
            warnings.append(
                f"node groups {', '.join(names)} had one size throughout the trace, which is their "
                "min and max: they are not scaled; write them with `reprieve node-groups TRACE` "
                "and edit the sizes"
            )
    else:
        file = with_templates(file, observed)
        whole = autoscaling(file, 0)
        for group in whole.groups:
            if (group.labels or group.names) and not any(
                whole.group_of(node) is group for node in observed.nodes.values()
            ):
                warnings.append(f"node group {group.name} picks no node of the trace")
    return written(file), warnings
