"""NodeAffinity: a node that comes to match, or matched when it came.

The affinity that a profile adds must match too. Upstream asks that of the node as it is now only:
a pod that the added affinity alone kept away is not queued by the change that ends it.

Source: kubernetes v1.34 plugins/nodeaffinity/node_affinity.go, isSchedulableAfterNodeChange;
component-helpers/scheduling/corev1/nodeaffinity, GetRequiredNodeAffinity.
"""

from __future__ import annotations

from services.kube.node import Node
from services.queue.core.happening import Happening
from services.queue.core.hints.objects import changed, spec_of
from services.queue.core.hints.profiles import HintProfiles, profile_of
from services.queue.core.pod import QueuedPod


def after_node_change(pod: QueuedPod, happening: Happening, /, *, profiles: HintProfiles) -> bool:
    """Queue where the node matches now and did not before."""
    known = changed(happening, Node)
    if known is None:
        return True
    old, new = known
    added = profile_of(pod, profiles).added_required
    if added is not None and not added.matches(new.labels, new.name):
        return False
    return _matches(pod, new) and (old is None or not _matches(pod, old))


def _matches(pod: QueuedPod, node: Node) -> bool:
    spec = spec_of(pod)
    if any(node.labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    required = spec.node_affinity.required if spec.node_affinity is not None else None
    return required is None or required.matches(node.labels, node.name)
