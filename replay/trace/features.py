"""What a pod may ask for that a replay does not simulate."""

from __future__ import annotations

from collections.abc import Iterator

from reprieve.kube.v1alpha1.pod_pb2 import PodSpec

# Parts of a cluster that change it by themselves, known by their images.
_ACTORS = ("cluster-autoscaler", "karpenter", "descheduler", "vertical-pod-autoscaler")


def pod_features(spec: PodSpec) -> Iterator[str]:
    """Yield what of a pod's spec is not simulated, in words."""
    if spec.resource_claims or any(each.resources.claims for each in spec.containers):
        yield "device claims (resourceClaims) are not simulated: they always fit"
    for container in spec.containers:
        for actor in _ACTORS:
            if actor in container.image:
                yield f"{actor} is not simulated: what it did stays as recorded"
