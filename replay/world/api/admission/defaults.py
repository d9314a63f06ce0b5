"""Fills in the defaults of a new pod, before the admission plugins and after them.

Only the fields that something here reads or shows. Pods of a recording or of a list of a cluster's
objects have all of this; the template of a workload has not: requests come from limits in the pod
only.

Source: kubernetes v1.34 pkg/apis/core/v1/defaults.go, SetDefaults_Pod, SetDefaults_PodSpec,
defaultPodRequests, defaultHostNetworkPorts; plugin/pkg/admission/defaulttolerationseconds/
admission.go, Admit (--default-not-ready-toleration-seconds and
--default-unreachable-toleration-seconds).
"""

from __future__ import annotations

from collections.abc import Iterable

from replay.world.api.admission.resources import aggregated, is_pod_level
from replay.world.models import DEFAULT_GRACE_S
from reprieve.kube.v1beta1 import pod_pb2
from services.kube.pod import DEFAULT_SCHEDULER
from services.kube.taints import NOT_READY, UNREACHABLE

DEFAULT_TOLERATION_S = 300
_TOLERATED = (NOT_READY, UNREACHABLE)
_NO_EXECUTE = "NoExecute"


def fill_in(spec: pod_pb2.PodSpec) -> None:
    """Fill in the defaults of a new pod's spec."""
    spec.restart_policy = spec.restart_policy or "Always"
    spec.scheduler_name = spec.scheduler_name or DEFAULT_SCHEDULER
    if not spec.HasField("termination_grace_period_seconds"):
        spec.termination_grace_period_seconds = DEFAULT_GRACE_S
    for containers in (spec.containers, spec.init_containers):
        _fill_in_containers(containers, host_network=spec.host_network)
    if spec.resources.limits:
        _fill_in_pod_requests(spec)


def tolerate(spec: pod_pb2.PodSpec, toleration_s: int | None) -> None:
    """Add the tolerations of nodes that are not ready or unreachable; None: the default time."""
    seconds = DEFAULT_TOLERATION_S if toleration_s is None else toleration_s
    for key in _TOLERATED:
        if not any(
            toleration.key in ("", key) and toleration.effect in ("", _NO_EXECUTE)
            for toleration in spec.tolerations
        ):
            spec.tolerations.add(
                key=key, operator="Exists", effect=_NO_EXECUTE, toleration_seconds=seconds
            )


def _fill_in_containers(containers: Iterable[pod_pb2.Container], *, host_network: bool) -> None:
    for container in containers:
        for name, limit in container.resources.limits.items():
            if name not in container.resources.requests:
                container.resources.requests[name] = limit
        for port in container.ports:
            port.protocol = port.protocol or "TCP"
            if host_network and not port.host_port:
                port.host_port = port.container_port


def _fill_in_pod_requests(spec: pod_pb2.PodSpec) -> None:
    """Fill in requests of the pod as a whole: those of its containers, else its limits."""
    requests = spec.resources.requests
    for name, amount in aggregated(spec, "requests").items():
        if name not in requests and is_pod_level(name) and not name.startswith("hugepages-"):
            requests[name] = str(amount)
    for name, limit in spec.resources.limits.items():
        if name not in requests and is_pod_level(name):
            requests[name] = limit
