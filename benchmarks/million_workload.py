"""A long trace of small pods that come and go, made record by record: its memory is bounded.

Pods come in whole seconds, as API servers write times, with four tiers of priority mixed. Every ten
minutes there is a rush in which more is asked for than the nodes hold, so that higher
tiers preempt lower ones. What runs at once does not depend on how many pods there are.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from replay.generate.workload import (
    NODE_SHAPES,
    POD_SIZES,
    TIERS,
    in_tier,
    node,
    pod_template,
    priority_class,
)
from replay.hashing import KeyedRandom, object_uid
from replay.importers.records import RecordNumbering
from reprieve.trace.v1beta1.trace_pb2 import Header, PodCreate, PodLife, Record, Template
from services.kube.time import SECOND_NS

NAMESPACE = "default"
SERVICE_S = 60
"""How long a pod runs on average."""
_PERIOD_S, _RUSH_S = 600, 60
_QUIET_PER_S, _RUSH_PER_S = 80, 200
"""Pods that come in a second on 1,000 nodes."""


def workload(
    pods: int, *, nodes: int = 1000, seed: int = 1, spread: bool = False
) -> Iterator[Record]:
    """Yield the trace; with `spread` pods come one by one, to the millisecond."""
    draw, numbering = KeyedRandom(seed), RecordNumbering()
    yield numbering.header(Header(source="synthetic", importer="benchmark 1", seed=seed))
    for tier in TIERS:
        yield numbering.record(0, create=priority_class(tier))
    for index in range(nodes):
        shape = draw.weighted(NODE_SHAPES, "node", index)
        yield numbering.record(0, create=node(f"node-{index:04d}", shape, f"zone-{index % 3}"))
    kinds = list(itertools.product(TIERS, POD_SIZES))
    for number, (tier, ((cpu_milli, memory_mib), _)) in enumerate(kinds, 1):
        pod = in_tier(pod_template(cpu_milli, memory_mib, labels={"tier": tier.name}), tier)
        yield numbering.record(0, template=Template(id=number, pod=pod))
    weighted = [(number, tier.weight * size[1]) for number, (tier, size) in enumerate(kinds, 1)]
    for index, at_ns in zip(range(pods), _arrivals(draw, nodes, spread=spread), strict=False):
        yield numbering.record(at_ns, pod_create=_pod(draw, weighted, index, spread=spread))


def _arrivals(draw: KeyedRandom, nodes: int, *, spread: bool) -> Iterator[int]:
    """Yield times without end, in order, ns."""
    for second in itertools.count(1):
        per_s = _RUSH_PER_S if second % _PERIOD_S >= _PERIOD_S - _RUSH_S else _QUIET_PER_S
        count = max(1, per_s * nodes // 1000)
        within = [draw.below(1000, "within", second, number) for number in range(count)]
        for milli in sorted(within) if spread else itertools.repeat(0, count):
            yield second * SECOND_NS + milli * 1_000_000


def _pod(
    draw: KeyedRandom, weighted: list[tuple[int, int]], index: int, *, spread: bool
) -> PodCreate:
    grain_ns = SECOND_NS // 1000 if spread else SECOND_NS
    service_ns = draw.exponential_ns(SERVICE_S * SECOND_NS, "service", index)
    life = PodLife(
        start_delay_duration_ns=draw.between(1, 3, "start", index) * SECOND_NS,
        service_duration_ns=-(-service_ns // grain_ns) * grain_ns,
        shutdown_duration_ns=draw.between(1, 8, "shutdown", index) * SECOND_NS,
    )
    create = PodCreate(template_id=draw.weighted(weighted, "kind", index), life=life)
    meta = create.pod.metadata
    meta.name, meta.namespace = f"pod-{index:07d}", NAMESPACE
    meta.uid = object_uid("Pod", NAMESPACE, meta.name)
    return create
