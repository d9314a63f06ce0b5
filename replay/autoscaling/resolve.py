"""The node groups of a replay, made complete by its trace before anything is started."""

from __future__ import annotations

from collections.abc import Iterable

from replay.autoscaling.errors import GroupsError
from replay.autoscaling.file import AutoscalerFile, autoscaling, read, written
from replay.autoscaling.observed import ObservedNodes, with_templates
from reprieve.trace.v1beta1 import trace_pb2

INFER = "infer"
"""The value of --autoscaler for the groups that the trace shows."""
_CLAIMS = (
    "{} claims devices, which --autoscaler does not simulate: a scale-up would be decided without "
    "them; leave --autoscaler out, or these pods"
)


def resolved(text: str, records: Iterable[trace_pb2.Record]) -> str:
    """Return a complete file of node groups. Raises GroupsError.

    text: of a file, or INFER.
    """
    file = None if text == INFER else read(text)
    observed = ObservedNodes()
    for record in records:
        observed.add(record)
    if observed.claiming:
        raise GroupsError(_CLAIMS.format(observed.claiming))
    if file is None:
        return written(AutoscalerFile(groups=observed.groups()))
    file = with_templates(file, observed)
    autoscaling(file, 0)
    return written(file)
