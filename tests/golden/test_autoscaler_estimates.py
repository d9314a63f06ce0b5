"""The autoscaler's estimator and expanders against what upstream's own code did."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from services.autoscaler.core.equivalence import equivalence_groups
from services.autoscaler.core.estimator.binpacking import estimate, order
from services.autoscaler.core.estimator.limits import NodeLimiter, node_limit
from services.autoscaler.core.expander.chain import ExpanderChain
from services.autoscaler.core.expander.options import ExpanderContext, ExpansionOption, PodPrice
from services.autoscaler.core.groups import NodeGroup
from services.autoscaler.core.options import Options, OptionsError
from services.autoscaler.core.simulator.snapshot import ClusterSnapshot
from services.autoscaler.core.simulator.templates import NodeTemplate, Templates
from tests.autoscaler_objects import Json, cluster_node, cluster_pod, daemon_set
from tests.vectors import read_vectors

GOLDEN = Path(__file__).parents[2].parent / "shared" / "golden"


def vectors(kind: str) -> Iterator[Json]:
    """Yield the vectors of a kind; skip where they are not beside the project."""
    files = sorted(GOLDEN.glob(f"autoscaler-{kind}-*.jsonl.gz"))
    if not files:
        pytest.skip("no ../shared/golden")
    for file in files:
        yield from read_vectors(file)


def test_estimates_are_those_of_upstream() -> None:
    """Groups of pods, their order, the limit, the nodes and what they hold."""
    failures, checked = [], 0
    for vector in vectors("estimate"):
        checked += 1
        found = estimated(vector)
        expected = (vector["expected"], *vector.get("alternatives", ()))
        if not any(all(found[name] == value for name, value in each.items()) for each in expected):
            wrong = {
                name: (found[name], value)
                for name, value in vector["expected"].items()
                if found[name] != value
            }
            failures.append(f"{vector['id']} {vector['tags']}: {wrong}")
    assert not failures, f"{len(failures)} of {checked}:\n" + "\n".join(failures[:10])
    assert checked >= 150


def estimated(vector: Json) -> Json:
    """Return what the estimator finds, in the vectors' form."""
    config = vector["config"]
    group = node_group("g", config["template"], config["group"])
    similar = [node_group("s", config["template"], plain) for plain in config.get("similar", ())]
    daemon_sets = [daemon_set(plain) for plain in vector.get("daemonsets", ())]
    template = Templates().of_cloud(group, daemon_sets, Options())
    snapshot = ClusterSnapshot()
    nodes = sorted((cluster_node(plain) for plain in vector["nodes"]), key=lambda node: node.name)
    snapshot.set_state(nodes, [cluster_pod(plain) for plain in vector["assigned"]])
    groups = equivalence_groups(cluster_pod(plain) for plain in vector["pending"])
    snapshot.fork()
    snapshot.add(template.node, template.pods)
    fitting = [
        index
        for index, each in enumerate(groups)
        if snapshot.refusal(each.sample, template.node.name) is None
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
    result = estimate(
        snapshot, template, tried, NodeLimiter(limit), fastpath=config.get("fastpath", False)
    )
    on_new: dict[str, list[str]] = {}
    on_existing: dict[str, list[str]] = {}
    for pod, name in result.placements:
        where = on_existing if name in snapshot else on_new
        where.setdefault(name, []).append(pod.key)
    return {
        "template_daemonset_pods": len(template.pods),
        "equivalence_groups": [[pod.key for pod in each.pods] for each in groups],
        "schedulable_groups": fitting,
        "order": [fitting[index] for index in order(tried, template.node)],
        "node_limit": limit,
        "node_count": result.node_count,
        "scheduled": [pod.key for pod in result.pods],
        "on_new_nodes": []
        if config.get("fastpath")
        else [sorted(keys) for keys in on_new.values()],
        "on_existing_nodes": {name: sorted(keys) for name, keys in on_existing.items()},
    }


def node_group(name: str, template: Json, sizes: Json, price: float | None = None) -> NodeGroup:
    """Return a group of a vector."""
    return NodeGroup(
        name=name,
        min_size=0,
        max_size=sizes.get("max", 0),
        target=sizes.get("target", 0),
        template=cluster_node(template),
        price=price,
    )


def test_expanders_choose_as_upstream_does() -> None:
    """Each chain leaves the options that upstream's may choose, or is refused."""
    failures, checked = [], 0
    for vector in vectors("expander"):
        checked += 1
        found = chosen(vector)
        if found != {
            "best": sorted(vector["expected"].get("best", ())),
            "error": "error" in vector["expected"],
        }:
            failures.append(f"{vector['id']}: {found}, expected {vector['expected']}")
    assert not failures, f"{len(failures)} of {checked}:\n" + "\n".join(failures[:10])
    assert checked >= 80


def chosen(vector: Json) -> Json:
    """Return what the expanders leave, in the vectors' form."""
    config = vector["config"]
    options = []
    for plain in vector["options"]:
        group = node_group(plain["group"], plain["template"], {}, plain.get("price"))
        option = ExpansionOption(
            group=group,
            template=NodeTemplate(group.template),
            node_count=plain["node_count"],
            pods=tuple(cluster_pod(pod) for pod in plain["pods"]),
        )
        options.append(option)
    context = ExpanderContext(
        pod_price=PodPrice(**config.get("pod_price", {})),
        priorities=config.get("priority_expander"),
        cluster_nodes=config.get("cluster_nodes", 0),
        gpu_label="example.com/gpu-type",
    )
    try:
        best = ExpanderChain(config["expander"]).best(options, context)
    except OptionsError:
        return {"best": [], "error": True}
    return {"best": sorted(option.group.name for option in best), "error": False}
