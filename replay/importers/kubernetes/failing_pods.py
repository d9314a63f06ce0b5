"""Pods of a list whose containers cannot run: what a replay makes in their place runs.

A replay does not know why a container crashes or cannot be created, nor whether another pod of the
same template would do better. The pods of the list stay as they are; their successors run and
become ready, which is a note, since budgets and rollouts read it.
"""

from __future__ import annotations

from collections.abc import Iterable

from replay.importers.records import Issues
from replay.kube.kinds import KINDS, metadata
from replay.world.kubelet.failing_containers import failing_reason
from reprieve.kube.v1beta1.meta_pb2 import OwnerReference
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject

_FAILING = "failing-pods"
_SUCCESSORS = (
    "it stays so, but a pod that a controller makes in its place runs and becomes ready, unless "
    "the template has the annotation reprieve/ready-delay: never"
)


def report_failing(objects: Iterable[KubernetesObject], issues: Issues) -> None:
    """Add an issue for each pod that a controller owns and whose containers cannot run."""
    owners: dict[str, OwnerReference] = {}
    failing: list[tuple[str, OwnerReference, str]] = []
    for message in objects:
        meta = metadata(message)
        owner = next((owner for owner in meta.owner_references if owner.controller), None)
        if owner is None:
            continue
        if not message.HasField("pod"):
            owners[meta.uid] = owner
        elif owner.kind in KINDS.values() and (reason := failing_reason(message.pod.status)):
            failing.append((meta.namespace, owner, reason))
    for namespace, owner, reason in failing:
        top = owners.get(owner.uid, owner)
        whose = f"{top.kind} {namespace}/{top.name}"
        issues.add(_FAILING, whose, f"a pod of {whose} waits with {reason}: {_SUCCESSORS}")
