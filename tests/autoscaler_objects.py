"""Objects of the autoscaler's vectors as its core has them."""

from __future__ import annotations

from typing import Any

from reprieve.kube.v1beta1 import node_pb2, pod_pb2, workloads_pb2
from services.autoscaler.core.objects import ClusterNode, ClusterPod, DaemonSet
from services.rpc.kube import json_codec
from services.rpc.kube.codec import node_from_message, pod_from_message
from services.rpc.kube.spec import PodSpecInterner, spec_from_message

Json = dict[str, Any]
_SPECS = PodSpecInterner()


def cluster_node(plain: Json) -> ClusterNode:
    """Return a node, or a template, whose name may be absent."""
    metadata = {"name": "template", **plain.get("metadata", {})}
    message = json_codec.parse(node_pb2.Node, {**plain, "metadata": metadata})
    return ClusterNode(
        node=node_from_message(message), provider_id=plain.get("spec", {}).get("providerID", "")
    )


def cluster_pod(plain: Json) -> ClusterPod:
    """Return a pod."""
    metadata = plain["metadata"]
    uid = metadata.get("uid") or f"{metadata['namespace']}/{metadata['name']}"
    message = json_codec.parse(pod_pb2.Pod, {**plain, "metadata": {**metadata, "uid": uid}})
    spec = plain["spec"]
    return ClusterPod(
        pod=pod_from_message(message, _SPECS),
        restart_policy=spec.get("restartPolicy", ""),
        has_priority="priority" in spec,
    )


def daemon_set(plain: Json) -> DaemonSet:
    """Return a daemon set."""
    message = json_codec.parse(workloads_pb2.DaemonSet, plain)
    template = message.spec.template
    return DaemonSet(
        namespace=message.metadata.namespace,
        name=message.metadata.name,
        uid=message.metadata.uid,
        labels=dict(template.metadata.labels),
        annotations=dict(template.metadata.annotations),
        spec=spec_from_message(template.spec, field="spec.template.spec"),
    )
