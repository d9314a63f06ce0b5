"""Kubernetes objects as the autoscaler's core reads them.

A kind that the autoscaler does not read is left out. Raises FieldError as
services/rpc/kube/codec.py does, which decodes what the scheduler reads, too.
"""

from __future__ import annotations

from reprieve.kube.v1beta1 import node_pb2, pod_pb2, workloads_pb2
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from services.autoscaler.core.cluster import ClusterObject
from services.autoscaler.core.objects import ClusterNode, ClusterPod, DaemonSet, ReplicaController
from services.kube.workloads import WORKLOAD_KINDS
from services.rpc.kube import fields
from services.rpc.kube.codec import budget_from_message, node_from_message, pod_from_message
from services.rpc.kube.spec import PodSpecInterner

_MEMORY = "Memory"


def object_from_message(
    message: KubernetesObject, interner: PodSpecInterner, *, field: str = "object"
) -> ClusterObject | None:
    """Return the object, None for a kind that the autoscaler does not read. Raises FieldError."""
    case = message.WhichOneof("object")
    path = f"{field}.{case}"
    match case:
        case "pod":
            return cluster_pod(message.pod, interner, field=path)
        case "node":
            return cluster_node(message.node, field=path)
        case "pod_disruption_budget":
            return budget_from_message(message.pod_disruption_budget, field=path)
        case "daemon_set":
            return daemon_set(message.daemon_set, interner, field=path)
        case "replica_set" | "replication_controller" | "stateful_set" | "job":
            return replica_controller(WORKLOAD_KINDS[case], getattr(message, case))
        case _:
            return None


def cluster_node(message: node_pb2.Node, *, field: str = "node") -> ClusterNode:
    """Return a node."""
    return ClusterNode(
        node=node_from_message(message, field=field),
        provider_id=message.spec.provider_id,
        creation_ns=fields.time_ns(message.metadata.creation_timestamp),
    )


def cluster_pod(
    message: pod_pb2.Pod, interner: PodSpecInterner, *, field: str = "pod"
) -> ClusterPod:
    """Return a pod."""
    spec = message.spec
    return ClusterPod(
        pod=pod_from_message(message, interner, field=field),
        local_volumes=tuple(
            volume.name
            for volume in spec.volumes
            if volume.HasField("host_path")
            or (volume.HasField("empty_dir") and volume.empty_dir.medium != _MEMORY)
        ),
        restart_policy=spec.restart_policy,
        has_priority=spec.HasField("priority"),
    )


def daemon_set(
    message: workloads_pb2.DaemonSet, interner: PodSpecInterner, *, field: str = "daemon_set"
) -> DaemonSet:
    """Return a daemon set."""
    template = message.spec.template
    return DaemonSet(
        namespace=message.metadata.namespace,
        name=message.metadata.name,
        uid=message.metadata.uid,
        labels=fields.strings(template.metadata.labels),
        annotations=fields.strings(template.metadata.annotations),
        spec=interner.spec(template.spec, field=f"{field}.spec.template.spec"),
    )


def replica_controller(
    kind: str,
    message: workloads_pb2.ReplicaSet
    | workloads_pb2.ReplicationController
    | workloads_pb2.StatefulSet
    | workloads_pb2.Job,
) -> ReplicaController:
    """Return a controller; without a number of replicas it has one."""
    desired = fields.optional(message.spec, "parallelism" if kind == "Job" else "replicas")
    return ReplicaController(
        kind=kind,
        namespace=message.metadata.namespace,
        name=message.metadata.name,
        uid=message.metadata.uid,
        desired=1 if desired is None else desired,
    )
