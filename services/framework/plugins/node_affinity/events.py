"""NodeAffinity: a node newly matches.

Source: kubernetes v1.34 plugins/nodeaffinity/node_affinity.go, EventsToRegister,
isSchedulableAfterNodeChange.
"""

from __future__ import annotations

from services.framework.cluster_event import PendingPod
from services.framework.hints import HintProfiles, events_of, on_with_profiles, profile_of, spec_of
from services.kube.node import Node


def affinity_matched(
    pod: PendingPod, old: Node | None, new: Node | None, *, profiles: HintProfiles
) -> bool:
    """Return Queue (true) if the node matches the pod's affinity and did not before.

    The affinity that a profile adds must match, too. Upstream checks that only of the node as it is
    now: a pod that the added affinity alone refused is not queued by the change that makes it
    match.
    """
    if new is None:
        return True
    added = profile_of(pod, profiles).added_required
    if added is not None and not added.matches(new.labels, new.name):
        return False
    return _matches(pod, new) and (old is None or not _matches(pod, old))


def _matches(pod: PendingPod, node: Node) -> bool:
    spec = spec_of(pod)
    required = spec.node_affinity.required if spec.node_affinity is not None else None
    return node.matches(spec.node_selector.items(), required)


EVENTS = events_of(
    "NodeAffinity",
    on_with_profiles("NodeAdd", affinity_matched),
    on_with_profiles("NodeLabelChange", affinity_matched),
)
