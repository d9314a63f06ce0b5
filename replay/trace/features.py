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
    if spec.topology_spread_constraints:
        yield "topologySpreadConstraints are not evaluated yet"
    if spec.affinity.HasField("pod_affinity") or spec.affinity.HasField("pod_anti_affinity"):
        yield "pod affinity and anti-affinity are not evaluated yet"
    if any(each.HasField("persistent_volume_claim") for each in spec.volumes):
        yield "persistent volume claims are not evaluated yet: they always fit"
    for container in spec.containers:
        for actor in _ACTORS:
            if actor in container.image:
                yield f"{actor} is not simulated: what it did stays as recorded"
