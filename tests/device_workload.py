"""Generated clusters with devices of every kind, and pods that come and go."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reprieve.trace.v1beta1 import trace_pb2
from services.kube.time import SECOND_NS
from tests import device_objects as k8s
from tests.e2e.replays import trace

MEMORY = 40
"""GiB of a GPU, of which parts take 10 and 20, and shares what is asked."""


def devices_of(draw: random.Random, *, shared: bool) -> Iterator[dict[str, Any]]:
    """Yield the whole GPUs, parts of one, and one that claims share."""
    for number in range(draw.randint(1, 2)):
        taints = [{"key": "broken", "effect": "NoSchedule"}] if draw.random() < 0.2 else []
        model = {"string": draw.choice(["A100", "H100"])}
        yield {"name": f"gpu-{number}", "attributes": {"model": model}, "taints": taints}
    for number, size in enumerate((10, 10, 20, 40)):
        part = {"counterSet": "card", "counters": {"memory": {"value": f"{size}Gi"}}}
        attributes = {"part": {"int": size}}
        yield {"name": f"part-{number}", "attributes": attributes, "consumesCounters": [part]}
    if shared:
        capacity = {"memory": {"value": f"{MEMORY}Gi"}}
        attributes = {"shared": {"bool": True}}
        yield {
            "name": "shared",
            "attributes": attributes,
            "capacity": capacity,
            "allowMultipleAllocations": True,
        }


def selecting(expression: str, **exactly: Any) -> dict[str, Any]:
    """Return a request for devices that an expression selects."""
    return k8s.request(selectors=[{"cel": {"expression": expression}}], **exactly)


def templates() -> list[dict[str, Any]]:
    """Return templates of every kind of request."""
    domain = f'device.attributes["{k8s.DRIVER}"]'
    part = f'"part" in {domain} && {domain}.part >= {{}}'
    first = [
        {
            "name": name,
            "deviceClassName": "gpu",
            "allocationMode": "ExactCount",
            "count": 1,
            "selectors": [{"cel": {"expression": part.format(size)}}],
        }
        for name, size in (("large", 40), ("small", 10))
    ]
    share = selecting(f'"shared" in {domain}', capacity={"requests": {"memory": "15Gi"}})
    return [
        k8s.template("any", k8s.request()),
        k8s.template("two", selecting(f'"model" in {domain}', count=2)),
        k8s.template("part", selecting(part.format(20))),
        k8s.template("either", {"name": "gpu", "firstAvailable": first}),
        k8s.template("share", share),
    ]


def cluster(draw: random.Random, nodes: int, pods: int, *, shared: bool) -> list[dict[str, Any]]:
    """Return nodes with devices, classes, templates and pods, some with a claim in common."""
    names = [f"n{number}" for number in range(nodes)]
    counters = {"memory": {"value": f"{MEMORY}Gi"}}
    objects: list[dict[str, Any]] = [k8s.device_class(), *templates(), k8s.claim("ours")]
    for name in names:
        devices = list(devices_of(draw, shared=shared))
        pool = {"name": name, "generation": 1, "resourceSliceCount": 2}
        counter_slice = k8s.slice_(name, [], pool=pool)
        counter_slice["metadata"] |= {"name": f"{name}-counters", "uid": f"uid-{name}-counters"}
        del counter_slice["spec"]["devices"]
        counter_slice["spec"]["sharedCounters"] = [{"name": "card", "counters": counters}]
        objects += [k8s.node(name), k8s.slice_(name, devices, pool=pool), counter_slice]
    kinds = ["any", "two", "part", "either", *(["share"] * shared)]
    for number in range(pods):
        name, end = f"p{number}", draw.choice([None, 5, 20, 60])
        if draw.random() < 0.2:
            objects.append(k8s.pod(name, claim="ours", service_s=end))
        else:
            objects.append(k8s.pod(name, template=draw.choice(kinds), service_s=end))
    return objects


def workload(
    folder: Path, seed: int, *, shared: bool = True, nodes: int = 0, pods: int = 0
) -> list[trace_pb2.Record]:
    """Return the trace of a cluster, whose pods come one after the other.

    A pod, a node and the claim in common may be deleted on the way, which may also come late.
    """
    draw = random.Random(seed)  # noqa: S311 - a test's choices
    nodes, pods = nodes or draw.randint(1, 3), pods or draw.randint(4, 16)
    objects = cluster(draw, nodes, pods, shared=shared)
    records = trace([k8s.written(folder / "x.json", *objects)])
    start_ns, at_ns = records[0].time_ns, records[0].time_ns
    created = [record for record in records if record.HasField("pod_create")]
    for record in created:
        at_ns += draw.choice([0, 0, 1, 7]) * SECOND_NS
        record.time_ns = at_ns
    later: list[trace_pb2.Record] = []
    for kind, name in (("Pod", "p1"), ("Node", "n1"), ("ResourceClaim", "ours")):
        if draw.random() < 0.4:
            gone = trace_pb2.Record(time_ns=start_ns + draw.randint(1, 60) * SECOND_NS)
            gone.delete.object.kind, gone.delete.object.name = kind, name
            gone.delete.object.namespace = "" if kind == "Node" else "default"
            later.append(gone)
    if draw.random() < 0.4:
        ours = [record for record in records if record.create.HasField("resource_claim")]
        for record in ours:
            record.time_ns = start_ns + draw.randint(1, 30) * SECOND_NS
    ordered = sorted([*records, *later], key=lambda record: record.time_ns)
    for number, record in enumerate(ordered, 1):
        record.sequence = number
    return ordered
