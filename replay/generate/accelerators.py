"""A cluster of accelerators: whole GPUs and GPUs in parts, and pods that claim them.

Half of the nodes have eight whole GPUs, of two models. The others have two cards of 80 GiB each,
which their driver offers as one device of 80, two of 40, four of 20 and seven of 10 GiB; all of a
card's devices consume its memory, so that what is in use decides what can be. Trainings claim one
to eight whole GPUs, of either model or of the faster one; services claim a part, rather of 40 GiB
than of 20; notebooks take any part of 10 GiB. At the peak more is claimed than there is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from replay.generate.workload import (
    GI,
    NAMESPACE,
    NodeShape,
    Tier,
    node,
    pod_template,
    priority_class,
)
from replay.hashing import KeyedRandom, object_uid
from replay.importers.records import RecordNumbering
from reprieve.kube.v1beta1 import device_pb2
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.trace.v1beta1.trace_pb2 import Header, PodCreate, PodLife, Record, Template
from services.kube.time import SECOND_NS

NODES, PODS = 40, 600
DRIVER = "gpu.example.com"
WINDOW_NS, SERVICE_NS = 1_800 * SECOND_NS, 900 * SECOND_NS
_WHOLE, _CARDS = 8, 2
_MODELS = ("fast", "slow")
_CARD_GIB = 80
_PARTS_GIB = ((80, 1), (40, 2), (20, 4), (10, 7))
"""The sizes of a card's devices, and how many it offers of each."""
_SHAPE = NodeShape(name="gpu", cores=96, memory_mib=768 * GI)
_TIERS = (
    Tier(name="notebook", priority=0, weight=0, grace_s=5),
    Tier(name="training", priority=1_000, weight=0, grace_s=30),
    Tier(name="service", priority=100_000, weight=0, grace_s=10),
)
_ATTRIBUTE = f'device.attributes["{DRIVER}"]'
_WHOLE_CLASS, _PART_CLASS = "gpu", "gpu-part"
_KINDS = (
    # Name of the claim template, tier, cores and GiB of memory of the pod, weight.
    (("train-1", _TIERS[1], 8, 64), 12),
    (("train-2", _TIERS[1], 16, 128), 8),
    (("train-4-fast", _TIERS[1], 32, 256), 5),
    (("train-8", _TIERS[1], 64, 512), 2),
    (("serve", _TIERS[2], 4, 16), 35),
    (("notebook", _TIERS[0], 2, 8), 38),
)


def accelerators(seed: int = 1) -> Iterator[Record]:
    """Yield the trace; its pods are created within half an hour."""
    draw, numbering = KeyedRandom(seed), RecordNumbering()
    header = Header(source="synthetic", importer="generate 1", seed=seed, has_devices=True)
    header.options["preset"] = "accelerators"
    yield numbering.header(header)
    made = [
        *(priority_class(tier) for tier in _TIERS),
        *_classes(),
        *_templates(),
        *(kept for index in range(NODES) for kept in _node(index)),
    ]
    for kept in made:
        yield numbering.record(0, create=kept)
    for number, ((claim, tier, cores, memory_gib), _) in enumerate(_KINDS, 1):
        pod = pod_template(1000 * cores, memory_gib * GI, labels={"app": claim})
        pod.spec.priority_class_name = tier.name
        pod.spec.termination_grace_period_seconds = tier.grace_s
        pod.spec.resource_claims.add(name="gpu", resource_claim_template_name=claim)
        pod.spec.containers[0].resources.claims.add(name="gpu")
        yield numbering.record(0, template=Template(id=number, pod=pod))
    kinds = [(number, weight) for number, (_, weight) in enumerate(_KINDS, 1)]
    arrivals = sorted((draw.below(WINDOW_NS, "arrival", index), index) for index in range(PODS))
    for at_ns, index in arrivals:
        lasts_ns = SECOND_NS + draw.exponential_ns(SERVICE_NS, "service", index)
        create = PodCreate(
            template_id=draw.weighted(kinds, "kind", index),
            life=PodLife(service_duration_ns=lasts_ns),
        )
        meta = create.pod.metadata
        meta.name, meta.namespace = f"pod-{index:04d}", NAMESPACE
        meta.uid = object_uid("Pod", NAMESPACE, meta.name)
        yield numbering.record(at_ns, pod_create=create)


def _node(index: int) -> Iterator[KubernetesObject]:
    """Yield a node and its slices: whole GPUs, or the counters and the parts of its cards."""
    name = f"gpu-{index:02d}"
    made = node(name, _SHAPE, f"zone-{index % 3}")
    yield made
    if index % 2 == 0:
        model = _MODELS[index // 2 % len(_MODELS)]
        whole = device_pb2.ResourceSlice()
        for number in range(_WHOLE):
            device = whole.spec.devices.add(name=f"gpu-{number}")
            device.attributes["model"].string_value = model
        yield _slice(name, "gpus", 1, whole)
        return
    counters, parts = device_pb2.ResourceSlice(), device_pb2.ResourceSlice()
    for card in range(_CARDS):
        held = counters.spec.shared_counters.add(name=f"card-{card}")
        held.counters["memory"].value = f"{_CARD_GIB}Gi"
        for size, count in _PARTS_GIB:
            for number in range(count):
                device = parts.spec.devices.add(name=f"card-{card}-{size}gi-{number}")
                device.attributes["part"].bool_value = True
                device.attributes["gib"].int_value = size
                consumed = device.consumes_counters.add(counter_set=held.name)
                consumed.counters["memory"].value = f"{size}Gi"
    yield _slice(name, "cards", 2, counters)
    yield _slice(name, "parts", 2, parts)


def _slice(
    node_name: str, what: str, slices: int, slice_: device_pb2.ResourceSlice
) -> KubernetesObject:
    meta, spec = slice_.metadata, slice_.spec
    meta.name = f"{node_name}-{what}"
    meta.uid = object_uid("ResourceSlice", "", meta.name)
    node_uid = object_uid("Node", "", node_name)
    meta.owner_references.add(
        api_version="v1", kind="Node", name=node_name, uid=node_uid, controller=True
    )
    spec.driver, spec.node_name = DRIVER, node_name
    spec.pool.name, spec.pool.generation, spec.pool.resource_slice_count = node_name, 1, slices
    return KubernetesObject(resource_slice=slice_)


def _classes() -> Iterator[KubernetesObject]:
    for name, expression in (
        (_WHOLE_CLASS, f'"model" in {_ATTRIBUTE}'),
        (_PART_CLASS, f'"part" in {_ATTRIBUTE}'),
    ):
        class_ = device_pb2.DeviceClass()
        class_.metadata.name, class_.metadata.uid = name, object_uid("DeviceClass", "", name)
        selector = f'device.driver == "{DRIVER}" && {expression}'
        class_.spec.selectors.add().cel.expression = selector
        yield KubernetesObject(device_class=class_)


def _templates() -> Iterator[KubernetesObject]:
    fast = f'{_ATTRIBUTE}.model == "fast"'
    for name, count, selectors in (
        ("train-1", 1, ()),
        ("train-2", 2, ()),
        ("train-4-fast", 4, (fast,)),
        ("train-8", 8, ()),
    ):
        request = device_pb2.DeviceRequest(name="gpu")
        _ask(request.exactly, _WHOLE_CLASS, count, selectors)
        yield _template(name, request)
    request = device_pb2.DeviceRequest(name="gpu")
    for size in (40, 20):
        alternative = request.first_available.add(name=f"of-{size}gi")
        _ask(alternative, _PART_CLASS, 1, (f"{_ATTRIBUTE}.gib == {size}",))
    yield _template("serve", request)
    request = device_pb2.DeviceRequest(name="gpu")
    _ask(request.exactly, _PART_CLASS, 1, (f"{_ATTRIBUTE}.gib == 10",))
    yield _template("notebook", request)


def _ask(
    request: device_pb2.ExactDeviceRequest | device_pb2.DeviceSubRequest,
    class_name: str,
    count: int,
    selectors: Sequence[str],
) -> None:
    request.device_class_name, request.allocation_mode = class_name, "ExactCount"
    request.count = count
    for expression in selectors:
        request.selectors.add().cel.expression = expression


def _template(name: str, request: device_pb2.DeviceRequest) -> KubernetesObject:
    template = device_pb2.ResourceClaimTemplate()
    meta = template.metadata
    meta.name, meta.namespace = name, NAMESPACE
    meta.uid = object_uid("ResourceClaimTemplate", NAMESPACE, name)
    template.spec.spec.devices.requests.append(request)
    return KubernetesObject(resource_claim_template=template)
