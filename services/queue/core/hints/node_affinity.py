"""NodeAffinity: a node that comes to match, or matched when it came.

The affinity that a profile adds for all pods is the scheduler's affair: a node that breaks it
queues the pod for one try more than upstream's hint would.

Source: kubernetes v1.34 plugins/nodeaffinity/node_affinity.go, isSchedulableAfterNodeChange;
component-helpers/scheduling/corev1/nodeaffinity, GetRequiredNodeAffinity.
"""

from __future__ import annotations

from services.kube.node import Node
from services.queue.core.happening import Happening
from services.queue.core.hints.objects import changed, spec_of
from services.queue.core.pod import QueuedPod


def after_node_change(pod: QueuedPod, happening: Happening) -> bool:
    """Queue where the node matches now and did not before."""
    known = changed(happening, Node)
    if known is None:
        return True
    old, new = known
    return _matches(pod, new) and (old is None or not _matches(pod, old))


def _matches(pod: QueuedPod, node: Node) -> bool:
    spec = spec_of(pod)
    if any(node.labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    required = spec.node_affinity.required if spec.node_affinity is not None else None
    return required is None or required.matches(node.labels, node.name)
