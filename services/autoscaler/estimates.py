"""Runs the estimator and the expanders alone, from JSON to JSON.

No RPC has it: how pending pods are grouped, in which order they fill new nodes, and which options a
chain of expanders leaves. The form is that of the golden vectors (conformance/README.md).
"""

from __future__ import annotations

from typing import Any

from reprieve.kube.v1beta1 import node_pb2, pod_pb2, workloads_pb2
from services.autoscaler.codec.objects import cluster_node, cluster_pod, daemon_set
from services.autoscaler.core.equivalence import equivalence_groups
from services.autoscaler.core.estimator.binpacking import estimate, order
from services.autoscaler.core.estimator.limits import NodeLimiter, node_limit
from services.autoscaler.core.expander.chain import ExpanderChain
from services.autoscaler.core.expander.options import ExpanderContext, ExpansionOption, PodPrice
from services.autoscaler.core.groups import NodeGroup
from services.autoscaler.core.objects import ClusterNode, ClusterPod
from services.autoscaler.core.options import Options, OptionsError
from services.autoscaler.core.simulator.snapshot import ClusterSnapshot
from services.autoscaler.core.simulator.templates import NodeTemplate, Templates
from services.rpc.kube import json_codec
from services.rpc.kube.spec import PodSpecInterner

Json = dict[str, Any]
GPU_LABEL = "example.com/gpu-type"


def estimated(vector: Json) -> Json:
    """Return what the estimator decides for a vector's cluster, group and pods."""
    config, interner = vector["config"], PodSpecInterner()
    group = _group("g", config["template"], config["group"])
    similar = [_group("s", config["template"], sizes) for sizes in config.get("similar", ())]
    daemon_sets = [
        daemon_set(json_codec.parse(workloads_pb2.DaemonSet, plain), interner)
        for plain in vector.get("daemonsets", ())
    ]
    template = Templates().of_cloud(group, daemon_sets, Options())
    nodes = sorted(map(_node, vector["nodes"]), key=lambda node: node.name)
    snapshot = ClusterSnapshot()
    snapshot.set_state(nodes, [_pod(plain, interner) for plain in vector["assigned"]])
    groups = equivalence_groups(_pod(plain, interner) for plain in vector["pending"])
    snapshot.fork()
    snapshot.add(template.node, template.pods)
    fitting = [
        index
        for index, alike in enumerate(groups)
        if snapshot.refusal(alike.sample, template.node.name) is None
    ]
    snapshot.revert()
    limit = node_limit(
        group,
        similar,
        nodes_now=len(nodes),
        max_nodes_total=config.get("max_nodes_total", 0),
        max_nodes_per_scaleup=config["max_nodes_per_scaleup"],
    )
    tried = [groups[index] for index in fitting]
    fastpath = config.get("fastpath", False)
    result = estimate(snapshot, template, tried, NodeLimiter(limit), fastpath=fastpath)
    on_new: dict[str, list[str]] = {}
    on_existing: dict[str, list[str]] = {}
    for pod, name in result.placements:
        where = on_existing if name in snapshot else on_new
        where.setdefault(name, []).append(pod.key)
    return {
        "template_daemonset_pods": len(template.pods),
        "equivalence_groups": [[pod.key for pod in alike.pods] for alike in groups],
        "schedulable_groups": fitting,
        "order": [fitting[index] for index in order(tried, template.node)],
        "node_limit": limit,
        "node_count": result.node_count,
        "scheduled": [pod.key for pod in result.pods],
        "on_new_nodes": [] if fastpath else [sorted(keys) for keys in on_new.values()],
        "on_existing_nodes": {name: sorted(keys) for name, keys in on_existing.items()},
    }


def chosen(vector: Json) -> Json:
    """Return which of a vector's options a chain of expanders leaves, or that it is refused."""
    config, interner = vector["config"], PodSpecInterner()
    options = [_option(plain, interner) for plain in vector["options"]]
    context = ExpanderContext(
        pod_price=PodPrice(**config.get("pod_price", {})),
        priorities=config.get("priority_expander"),
        cluster_nodes=config.get("cluster_nodes", 0),
        gpu_label=GPU_LABEL,
    )
    try:
        best = ExpanderChain(config["expander"]).best(options, context)
    except OptionsError:
        return {"best": [], "error": True}
    return {"best": sorted(option.group.name for option in best), "error": False}


def _option(plain: Json, interner: PodSpecInterner) -> ExpansionOption:
    group = _group(plain["group"], plain["template"], {}, plain.get("price"))
    return ExpansionOption(
        group=group,
        template=NodeTemplate(group.template),
        node_count=plain["node_count"],
        pods=tuple(_pod(pod, interner) for pod in plain["pods"]),
    )


def _group(name: str, template: Json, sizes: Json, price: float | None = None) -> NodeGroup:
    return NodeGroup(
        name=name,
        min_size=0,
        max_size=sizes.get("max", 0),
        target=sizes.get("target", 0),
        template=_node(template),
        price=price,
    )


def _node(plain: Json) -> ClusterNode:
    """Return a node, or a template, whose name may be absent."""
    named = {**plain, "metadata": {"name": "template", **plain.get("metadata", {})}}
    return cluster_node(json_codec.parse(node_pb2.Node, named))


def _pod(plain: Json, interner: PodSpecInterner) -> ClusterPod:
    """Return a pod; without a UID its key is that."""
    meta = plain["metadata"]
    known = {**plain, "metadata": {"uid": f"{meta['namespace']}/{meta['name']}", **meta}}
    return cluster_pod(json_codec.parse(pod_pb2.Pod, known), interner)
