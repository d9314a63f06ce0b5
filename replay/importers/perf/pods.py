"""The pods that a createPods operation makes, with their claims and volumes.

Source: kubernetes v1.36 test/integration/scheduler_perf, executor.go (getPodStrategy,
getCustomVolumeFactory) and runners.go (MakePodSpec, CreatePodWithPersistentVolume).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from replay.identity import object_uid
from replay.importers.perf.names import Names
from replay.importers.perf.object_files import ObjectFiles
from replay.importers.perf.workload import Operation
from replay.trace.errors import TraceError
from reprieve.kube.v1alpha1.object_pb2 import Object
from reprieve.kube.v1alpha1.pod_pb2 import Container, Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class MadePod:
    """A pod, and what is created before it."""

    before: tuple[Object, ...]
    pod: Pod


def made_pods(
    operation: Operation, template: str, namespace: str, files: ObjectFiles, names: Names
) -> Iterator[MadePod]:
    """Yield the operation's pods; `template` "" is upstream's own pod."""
    count = operation.count()
    claim = operation.text("persistentVolumeClaimTemplatePath")
    volume = operation.text("persistentVolumeTemplatePath")
    for index in range(count):
        values = operation.template_values(index, count)
        pod = _pod(files, template, values)
        pod.metadata.namespace = namespace
        before: tuple[Object, ...] = ()
        if claim:
            before = _bound_volume(files, claim, volume, namespace, index)
            del pod.spec.volumes[:]
            source = pod.spec.volumes.add(name="vol").persistent_volume_claim
            source.claim_name = f"pvc-{index}"
        names.name(pod.metadata, "Pod")
        pod.metadata.uid = object_uid("Pod", namespace, pod.metadata.name)
        yield MadePod(before=before, pod=pod)


def _pod(files: ObjectFiles, template: str, values: dict[str, object]) -> Pod:
    if not template:
        return _base()
    made = files.make(template, values)
    if made is None or made.WhichOneof("object") != "pod":
        raise TraceError(str(files.path(template)), "is no template of a pod")
    return made.pod


def _base() -> Pod:
    pod = Pod()
    pod.metadata.generate_name = "pod-"
    container = Container(name="pause", image="registry.k8s.io/pause:3.10.1")
    container.ports.add(container_port=80)
    amounts = {"cpu": "100m", "memory": "500Mi"}
    container.resources.requests.update(amounts)
    container.resources.limits.update(amounts)
    pod.spec.containers.append(container)
    return pod


def _bound_volume(
    files: ObjectFiles, claim_template: str, volume_template: str, namespace: str, index: int
) -> tuple[Object, Object]:
    """Return a claim and its volume, bound to each other."""
    claim = files.make(claim_template, {})
    volume = files.make(volume_template, {}) if volume_template else None
    if claim is None or claim.WhichOneof("object") != "persistent_volume_claim":
        raise TraceError(str(files.path(claim_template)), "is no template of a claim")
    if volume is None or volume.WhichOneof("object") != "persistent_volume":
        raise TraceError(str(files.path(volume_template)), "is no template of a volume")
    own, claims = volume.persistent_volume, claim.persistent_volume_claim
    own.metadata.name = f"{namespace}-vol-{index}"
    own.metadata.uid = object_uid("PersistentVolume", "", own.metadata.name)
    claims.metadata.name, claims.metadata.namespace = f"pvc-{index}", namespace
    claims.metadata.uid = object_uid("PersistentVolumeClaim", namespace, claims.metadata.name)
    if own.spec.HasField("csi"):
        own.spec.csi.volume_handle = own.metadata.name
    if own.spec.HasField("aws_elastic_block_store"):
        own.spec.aws_elastic_block_store.volume_id = f"vol-{index}"
    own.spec.claim_ref.namespace, own.spec.claim_ref.name = namespace, claims.metadata.name
    claims.spec.volume_name = own.metadata.name
    own.status.phase, claims.status.phase = "Bound", "Bound"
    return claim, volume
