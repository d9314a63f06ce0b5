"""What a pod asks of a node, read from its message.

Source: kubernetes v1.34 component-helpers/resource/helpers.go, PodRequests, without pod-level
resources: containers and sidecars add up, an init container counts beside the sidecars before it.
"""

from __future__ import annotations

from collections import Counter

from replay.overrides.inventory import amounts
from reprieve.kube.v1alpha1 import pod_pb2


def pod_requests(spec: pod_pb2.PodSpec) -> dict[str, int]:
    """Return the totals by resource, "cpu" in thousandths of a core, else whole units."""
    total: Counter[str] = Counter()
    for container in spec.containers:
        total.update(amounts(container.resources.requests))
    sidecars: Counter[str] = Counter()
    peak: Counter[str] = Counter()
    for container in spec.init_containers:
        asked = Counter(amounts(container.resources.requests))
        peak |= sidecars + asked
        if container.restart_policy == "Always":
            sidecars += asked
    total += sidecars
    total |= peak
    total.update(amounts(spec.overhead))
    return dict(total)
