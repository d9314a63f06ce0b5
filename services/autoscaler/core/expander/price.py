"""price: the group whose nodes cost least beside what their pods are worth.

A small amount is added to both prices, so that few cheap pods do not decide alone. Nodes that
differ from the size that suits the cluster (larger, the more nodes it has) count as dearer, less so
where many nodes come at once. Nodes with GPUs count as very dear: nobody gets one who does not need
it. A group without a price is left out.

Source: kubernetes/autoscaler 1.36 expander/price/price.go; preferred.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import tanh

from services.autoscaler.core.expander.options import ExpanderContext, ExpansionOption, requested
from services.kube.pod import PodSpec
from services.kube.requests import CPU

_MIB = 1 << 20
_STABILIZING = (500, 500 * _MIB)
_PREFERRED = ((2, 1), (6, 2), (20, 4), (60, 8), (200, 16))
"""Up to so many nodes in the cluster, nodes of so many cores suit it."""
_PREFERRED_MOST = 32
_GPU_UNFITNESS = 1000.0
_NODES_UNTIL_SIZE_HARDLY_COUNTS = 15.0


def best(options: Sequence[ExpansionOption], context: ExpanderContext) -> list[ExpansionOption]:
    """Return the options of the lowest score."""
    scores = [
        (option, _score(option, option.group.price, context))
        for option in options
        if option.group.price is not None
    ]
    lowest = min((score for _, score in scores), default=0.0)
    return [option for option, score in scores if score == lowest]


def _score(option: ExpansionOption, node_price: float, context: ExpanderContext) -> float:
    pods_price = 0.0
    prices: dict[PodSpec, float] = {}
    # Pod by pod, as upstream adds floats, though thousands of pods have a few specs.
    for pod in option.pods:
        spec = pod.pod.spec
        if spec not in prices:
            prices[spec] = context.pod_price.of(requested(spec))
        pods_price += prices[spec]
    stabilizing = context.pod_price.of(_STABILIZING)
    spent = _ratio(node_price * option.node_count + stabilizing, pods_price + stabilizing)
    return _unfitness(option, context) * spent


def _unfitness(option: ExpansionOption, context: ExpanderContext) -> float:
    node = option.template.node.node
    if context.gpu_label in node.labels:
        return _GPU_UNFITNESS
    preferred = _preferred_cpu_milli(context.cluster_nodes)
    cpu = node.capacity.get(CPU, 0)
    unfitness = max(_ratio(preferred, cpu), _ratio(cpu, preferred))
    damping = tanh((option.node_count - 1) / _NODES_UNTIL_SIZE_HARDLY_COUNTS)
    return (unfitness - 1.0) * (1.0 - damping) + 1.0


def _preferred_cpu_milli(cluster_nodes: int) -> int:
    cores = (cores for nodes_max, cores in _PREFERRED if cluster_nodes <= nodes_max)
    return 1000 * next(cores, _PREFERRED_MOST)


def _ratio(one: float, other: float) -> float:
    return one / other if other else float("inf")
