"""Named workloads: the bundled four tiers, one that resembles the OpenB data set, accelerators.

"openb-like" has 1,213 nodes and 7,064 pods, which are all created at once. Its totals resemble the
published figures of the data set: cores and memory, requests of three fifths of the cores, and at
the end a few pods of almost a node's size, for which no empty node is left. It is meant for
benchmarks: no pod is preempted, and no pod ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from replay.generate.accelerators import accelerators
from replay.generate.workload import GI, GenerateOptions, NodeShape, generate, node, pod_template
from replay.hashing import KeyedRandom, object_uid
from replay.importers.records import RecordNumbering
from reprieve.kube.v1beta1.pod_pb2 import Pod
from reprieve.trace.v1beta1.trace_pb2 import Header, PodCreate, Record, Template

NODES, PODS, SHAPES = 1213, 7064, 160
NAMESPACE = "default"
_NODES = (
    (NodeShape(name="n96", cores=96, memory_mib=384 * GI), 470),
    (NodeShape(name="n104", cores=104, memory_mib=512 * GI), 320),
    (NodeShape(name="n16", cores=16, memory_mib=120 * GI), 90),
    (NodeShape(name="n128", cores=128, memory_mib=768 * GI), 35),
    (NodeShape(name="n64", cores=64, memory_mib=256 * GI), 30),
    (NodeShape(name="n32", cores=32, memory_mib=128 * GI), 30),
    (NodeShape(name="n8", cores=8, memory_mib=32 * GI), 25),
)
# Millicores and MiB of the drawn shapes, with the weights of their pods.
_SIZES = (
    ((3000, 5_500), 24),
    ((4000, 18_000), 9),
    ((8000, 30_000), 12),
    ((10_000, 41_000), 5),
    ((11_500, 48_000), 35),
    ((15_500, 55_000), 6),
    ((18_500, 64_000), 5),
    ((24_000, 93_000), 3),
)
# CPU (millicores) and memory (MiB) of pods that almost fill a node, with the number of pods.
_HUGE = (((88_000, 320_000), 18), ((64_000, 262_144), 24), ((120_000, 640_000), 5))


def openb_like(seed: int = 1) -> Iterator[Record]:
    """Yield the trace; all records are at time 0."""
    draw, numbering = KeyedRandom(seed), RecordNumbering()
    header = Header(source="synthetic", importer="generate 1", seed=seed)
    header.options["preset"] = "openb-like"
    yield numbering.header(header)
    for index in range(NODES):
        shape = draw.weighted(_NODES, "node", index)
        yield numbering.record(0, create=node(f"node-{index:04d}", shape, f"zone-{index % 3}"))
    shapes = _shapes(draw)
    for number, (pod, _) in enumerate(shapes, 1):
        yield numbering.record(0, template=Template(id=number, pod=pod))
    ordinary = [(number, weight) for number, (_, weight) in enumerate(shapes, 1) if weight]
    huge = [number for number, (_, count) in enumerate(_HUGE, 1) for _ in range(count)]
    places = sorted(range(PODS), key=lambda index: draw.share("place", index))[: len(huge)]
    huge_by_place = dict(zip(places, huge, strict=True))
    for index in range(PODS):
        template_id = huge_by_place.get(index) or draw.weighted(ordinary, "pod", index)
        create = PodCreate(template_id=template_id)
        meta = create.pod.metadata
        meta.name, meta.namespace = f"pod-{index:04d}", NAMESPACE
        meta.uid = object_uid("Pod", NAMESPACE, meta.name)
        yield numbering.record(0, pod_create=create)


def _shapes(draw: KeyedRandom) -> list[tuple[Pod, int]]:
    """Return the pod templates with their weights; huge pods come first, with weight 0.

    Weight 0 excludes them from the draw.
    """
    result = [(pod_template(cpu, memory, labels={}), 0) for (cpu, memory), _ in _HUGE]
    for number in range(SHAPES - len(_HUGE)):
        (cpu_milli, memory_mib), weight = _SIZES[number % len(_SIZES)]
        cpu_milli = cpu_milli * draw.between(92, 108, "cpu", number) // 100
        memory_mib = memory_mib * draw.between(60, 110, "memory", number) // 100
        result.append((pod_template(cpu_milli, memory_mib, labels={}), weight))
    return result


PRESETS: Mapping[str, Callable[[int], Iterator[Record]]] = {
    "four-tiers": lambda seed: generate(GenerateOptions(seed=seed)),
    "openb-like": openb_like,
    "accelerators": accelerators,
}
"""Trace generators by preset name, each called with a seed; "four-tiers" is the bundled trace."""
