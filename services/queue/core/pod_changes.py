"""What an update of a pod changed, as the cluster events that plugins register for.

Source: kubernetes v1.34 pkg/scheduler/framework/events.go, PodSchedulingPropertiesChange.
"""

from __future__ import annotations

from collections.abc import Mapping

from services.kube.pod import PodSpec
from services.kube.requests import pod_requests
from services.queue.core.cluster_event import Action, ClusterEvent, pod_update
from services.queue.core.pod import QueuedPod


def pending_pod_changes(old: QueuedPod | None, new: QueuedPod) -> tuple[ClusterEvent, ...]:
    """Return the events of a waiting pod's change, in upstream's order; one at least.

    An update that changes nothing that upstream looks for is the general one, and so is one
    whose old version nobody knows.
    """
    parts = () if old is None else _changed(old.labels, new.labels, old.spec, new.spec)
    return tuple(pod_update(part, assigned=False) for part in parts or (Action.UPDATE,))


def _changed(
    old_labels: Mapping[str, str],
    new_labels: Mapping[str, str],
    old: PodSpec | None,
    new: PodSpec | None,
) -> tuple[Action, ...]:
    parts: list[Action] = []
    if old_labels is not new_labels and dict(old_labels) != dict(new_labels):
        parts.append(Action.UPDATE_POD_LABEL)
    if old is None or new is None or old is new:
        return tuple(parts)
    if _scaled_down(old, new):
        parts.append(Action.UPDATE_POD_SCALE_DOWN)
    if old.scheduling_gates and not new.scheduling_gates:
        parts.append(Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
    if len(old.tolerations) != len(new.tolerations):
        parts.append(Action.UPDATE_POD_TOLERATION)
    return tuple(parts)


def _scaled_down(old: PodSpec, new: PodSpec) -> bool:
    asked = pod_requests(new)
    return any(
        name not in asked or amount > asked[name] for name, amount in pod_requests(old).items()
    )
