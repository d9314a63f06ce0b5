"""A Kubernetes pod message to what eviction reads of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reprieve.kube.v1beta1 import pod_pb2, volume_pb2
from services.eviction.core.pod import EvictionContainer, EvictionPod, Resources, Volume
from services.kube import quantity
from services.kube.quantity import Quantity
from services.rpc import kube_fields
from services.rpc.errors import FieldError


def pod_from_message(message: pod_pb2.Pod, *, field: str) -> EvictionPod:
    """Return the pod; `field` is the message's path. Raises FieldError, also without a UID."""
    meta, spec = message.metadata, message.spec
    if not meta.uid:
        raise FieldError(f"{field}.metadata.uid", "is required: it names the pod")
    path = f"{field}.spec"
    return EvictionPod(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        priority=spec.priority,
        containers=_containers(spec.containers, f"{path}.containers"),
        init_containers=_containers(spec.init_containers, f"{path}.initContainers"),
        overhead=_resources(spec.overhead, f"{path}.overhead"),
        volumes=tuple(
            _volume(each, f"{path}.volumes[{index}]") for index, each in enumerate(spec.volumes)
        ),
        annotations=kube_fields.strings(meta.annotations),
        termination_grace_s=kube_fields.optional(spec, "termination_grace_period_seconds"),
        qos_class=message.status.qos_class,
        tolerations=kube_fields.tolerations(spec.tolerations, f"{path}.tolerations"),
    )


def _containers(messages: Sequence[pod_pb2.Container], field: str) -> tuple[EvictionContainer, ...]:
    return tuple(
        EvictionContainer(
            name=each.name,
            requests=_resources(each.resources.requests, f"{field}[{index}].resources.requests"),
            limits=_resources(each.resources.limits, f"{field}[{index}].resources.limits"),
            restart_policy=each.restart_policy,
        )
        for index, each in enumerate(messages)
    )


def _resources(quantities: Mapping[str, str], field: str) -> Resources:
    if not quantities:
        return {}
    return {name: _quantity(text, f"{field}[{name}]") for name, text in quantities.items()}


def _quantity(text: str, field: str) -> Quantity:
    try:
        return quantity.parse(text)
    except quantity.QuantityError as error:
        raise FieldError(field, str(error)) from None


def _volume(message: volume_pb2.Volume, field: str) -> Volume:
    sources = [each for each, _ in message.ListFields() if each.message_type is not None]
    empty_dir = message.empty_dir
    return Volume(
        name=message.name,
        kind=sources[0].json_name if sources else "",
        medium=empty_dir.medium,
        size_limit=(
            _quantity(empty_dir.size_limit, f"{field}.emptyDir.sizeLimit")
            if empty_dir.HasField("size_limit")
            else None
        ),
    )
