"""Finds Cluster Autoscaler's scale-ups for a pod, and the nodes that they added."""

from __future__ import annotations

from collections.abc import Iterator

from replay.results.durations import simulated
from replay.results.run.directory import RunDirectory
from reprieve.trace.v1beta1 import trace_pb2


def scale_ups(run: RunDirectory, uid: str) -> Iterator[tuple[trace_pb2.Decision, str]]:
    """Yield the log's entries about scale-ups for a pod, each with a sentence, in order."""
    awaited: set[str] = set()
    for entry in run.decisions():
        observed = entry.observed
        scaled, provisioned = observed.scaled_up, observed.node_provisioned
        if any(pod.uid == uid for pod in scaled.pods):
            awaited.update(scaled.node_names)
            sizes = f"from {scaled.from_size} to {scaled.to_size} nodes"
            yield entry, f"scale-up of {observed.object.name} for it, {sizes}"
        elif observed.HasField("node_provisioned") and observed.object.name in awaited:
            took = simulated(provisioned.elapsed_duration_ns)
            name = observed.object.name
            ready = f"ready, {took} after it was asked for"
            yield entry, f"node {name}: {provisioned.message or ready}"


def no_scale_up(refused: trace_pb2.NoScaleUp) -> str:
    """Return why no group was scaled up for a pod."""
    groups = "; ".join(f"{group.group}: {', '.join(group.reasons)}" for group in refused.groups)
    return f"no node group could hold it: {groups}"
