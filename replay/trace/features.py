"""What controllers make pods by, and what a pod may ask for that a replay does not simulate."""

from __future__ import annotations

from collections.abc import Iterator

from reprieve.kube.v1alpha1.object_pb2 import Object
from reprieve.kube.v1alpha1.pod_pb2 import PodSpec
from reprieve.kube.v1alpha1.workloads_pb2 import PodTemplateSpec

CONTROLLERS = (
    "deployment",
    "replica_set",
    "replication_controller",
    "stateful_set",
    "daemon_set",
    "job",
    "cron_job",
)
"""The kinds that make pods, by the fields of an Object that hold them."""
# Parts of a cluster that change it by themselves, known by their images.
_ACTORS = ("cluster-autoscaler", "karpenter", "descheduler", "vertical-pod-autoscaler")


def pod_template(message: Object) -> PodTemplateSpec | None:
    """Return the template in an object itself that its pods are made by, None for other kinds."""
    kind = message.WhichOneof("object")
    if kind not in CONTROLLERS:
        return None
    spec = getattr(message, kind).spec
    if kind == "cron_job":
        spec = spec.job_template.spec
    template: PodTemplateSpec = spec.template
    return template


def pod_features(spec: PodSpec) -> Iterator[str]:
    """Yield what of a pod's spec is not simulated, in words."""
    if spec.resource_claims or any(each.resources.claims for each in spec.containers):
        yield "device claims (resourceClaims) are not simulated: they always fit"
    for container in spec.containers:
        for actor in _ACTORS:
            if actor in container.image:
                yield f"{actor} is not simulated: what it did stays as recorded"
