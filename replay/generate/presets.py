"""A look-alike of the OpenB replay: 1,213 nodes and 7,064 pods that all come at once.

Sizes follow the public figures of the data set in kind, not in number: cores and memory only, three
fifths of the cores asked for, and a handful of pods of most of a node's size that come too late to
find a node that is still empty. For benchmarks: nothing is preempted, and nothing ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from replay.generate.draw import Draw
from replay.generate.workload import GI, GenerateOptions, NodeShape, generate, node, pod_template
from replay.importers.records import Numbering
from replay.kube.identity import object_uid
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
# Millicores and MiB from which shapes are drawn, with the weight of the pods.
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
# Pods of most of a node come by their number, so that every seed has as many.
_HUGE = (((88_000, 320_000), 18), ((64_000, 262_144), 24), ((120_000, 640_000), 5))


def openb_like(seed: int = 1) -> Iterator[Record]:
    """Yield the trace; all records are at time 0."""
    draw, numbering = Draw(seed), Numbering()
    header = Header(source="synthetic", importer="generate 1", seed=seed)
    header.options["preset"] = "openb-like"
    yield numbering.header(header)
    for index in range(NODES):
        shape = draw.weighted(_NODES, "node", index)
        yield numbering.record(0, create=node(f"node-{index:04d}", shape, f"zone-{index % 3}"))
    shapes = _shapes(draw)
    for number, (pod, _) in enumerate(shapes, 1):
        yield numbering.record(0, template=Template(id=number, pod=pod))
    usual = [(number, weight) for number, (_, weight) in enumerate(shapes, 1) if weight]
    huge = [number for number, (_, many) in enumerate(_HUGE, 1) for _ in range(many)]
    places = sorted(range(PODS), key=lambda index: draw.share("place", index))[: len(huge)]
    special = dict(zip(places, huge, strict=True))
    for index in range(PODS):
        template_id = special.get(index) or draw.weighted(usual, "pod", index)
        create = PodCreate(template_id=template_id)
        meta = create.pod.metadata
        meta.name, meta.namespace = f"pod-{index:04d}", NAMESPACE
        meta.uid = object_uid("Pod", NAMESPACE, meta.name)
        yield numbering.record(0, pod_create=create)


def _shapes(draw: Draw) -> list[tuple[Pod, int]]:
    """Return the templates with their weights; the huge ones come first and have none."""
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
}
"""By name: a function of the seed. "four-tiers" is the bundled demo trace, "openb-like" the
benchmark's."""
