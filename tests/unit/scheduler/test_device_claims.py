"""DynamicResources over a changing cluster: claims reserved, given back, saved and looked at again.

Single scenarios are in upstream's vectors; here one cycle follows the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from services.cel.selectors import DeviceSelectors
from services.framework.plugins.in_tree import SERVED, with_selectors
from services.framework.runtime.framework import Framework
from services.framework.snapshot.devices import InUse
from services.framework.snapshot.snapshot import Snapshot
from services.kube.devices import (
    FINALIZER,
    ClaimSpec,
    Device,
    DeviceClass,
    DeviceId,
    DeviceRequest,
    NodeChoice,
    RequestDetail,
    ResourceClaim,
    ResourceSlice,
)
from services.kube.pod import Pod, PodClaim
from services.scheduler.core.queueing.mirror import QUEUE_TRAITS
from services.scheduler.core.queueing.steps import Move, QueueAdd, QueueStep, SetGates
from services.scheduler.core.session.options import RULES, SchedulerOptions
from services.scheduler.core.session.scheduler import Scheduler
from tests.builders import make_node, make_pod
from tests.cycles import evaluate

NAME = "DynamicResources"
DRIVER = "gpu.example.com"


class Cluster:
    """Nodes with GPUs, and the plugin in its profile; `selectors` count their evaluations."""

    def __init__(self, gpus: dict[str, int], version: str = "v1.36") -> None:
        rules = RULES[version]
        self.selectors = DeviceSelectors(multiple=True)
        self.snapshot = Snapshot()
        self.devices = self.snapshot.catalog.devices
        registry = with_selectors({**SERVED, **rules.plugins}, self.selectors)
        self.framework = Framework(self.snapshot, rules.profile, registry)
        selector = f'device.driver == "{DRIVER}"'
        self.devices.put(DeviceClass(name="gpu", selectors=(selector,)))
        for name, count in gpus.items():
            self.snapshot.set_node(make_node(name).capacity(cpu="10", memory="10Gi").obj())
            self.publish(name, count)

    def publish(self, node: str, count: int) -> None:
        """Let a node have so many GPUs."""
        self.devices.put(
            ResourceSlice(
                name=f"{node}-gpus",
                driver=DRIVER,
                pool=node,
                slice_count=1,
                nodes=NodeChoice(node_name=node),
                devices=tuple(Device(name=f"gpu-{index}") for index in range(count)),
            )
        )

    def claim(self, name: str, count: int = 1) -> ResourceClaim:
        """Add a claim of GPUs."""
        detail = RequestDetail(name="r", class_name="gpu", count=count)
        spec = ClaimSpec(requests=(DeviceRequest(name="r", exactly=detail),))
        claim = ResourceClaim(namespace="default", name=name, uid=f"uid-{name}", spec=spec)
        self.devices.put(claim)
        return claim

    def pod(self, name: str, *claims: str) -> Pod:
        """Return a pod with claims of these names."""
        pod = make_pod(name).uid(f"uid-{name}").req({"cpu": "1"}).obj()
        named = tuple(PodClaim(name=claim, claim_name=claim) for claim in claims)
        return replace(pod, spec=replace(pod.spec, device_claims=named))

    def fits(self, pod: Pod) -> tuple[str, ...]:
        """Return the nodes that a pod fits."""
        return evaluate(self.framework, pod).feasible

    def reserve(self, pod: Pod, node: str) -> None:
        """Assume a pod that fits a node, up to its binding."""
        row = self.snapshot.row(node)
        assert row is not None
        self.snapshot.assume(pod, node)
        assert self.framework.reserve(pod, row) is None
        assert self.framework.pre_bind(pod, node) is None

    def unreserve(self, pod: Pod, node: str) -> None:
        """Take the pod back."""
        row = self.snapshot.row(node)
        assert row is not None
        self.framework.unreserve(pod, row)
        self.snapshot.forget(pod.uid)


def test_a_device_is_free_again_where_its_pod_is_not_bound() -> None:
    """Reserve takes it in the scheduler's own view, and Unreserve gives it back."""
    cluster = Cluster({"a": 1, "b": 0})
    before = cluster.claim("one")
    cluster.claim("two")
    first, second = cluster.pod("first", "one"), cluster.pod("second", "two")
    assert cluster.fits(first) == ("a",)
    cluster.reserve(first, "a")
    held = cluster.devices.claims["default/one"]
    assert held.finalizers == (FINALIZER,)
    assert [consumer.uid for consumer in held.reserved_for] == ["uid-first"]
    assert cluster.fits(second) == ()
    cluster.unreserve(first, "a")
    assert cluster.devices.claims["default/one"] == before
    assert cluster.fits(second) == ("a",)


def test_a_claim_that_changed_since_is_not_restored() -> None:
    """The world's version stands."""
    cluster = Cluster({"a": 1})
    cluster.claim("one")
    pod = cluster.pod("p", "one")
    assert cluster.fits(pod) == ("a",)
    cluster.reserve(pod, "a")
    confirmed = replace(cluster.devices.claims["default/one"], resource_version="7")
    cluster.devices.put(confirmed)
    cluster.unreserve(pod, "a")
    assert cluster.devices.claims["default/one"] is confirmed


def test_a_node_is_looked_at_again_when_its_devices_change() -> None:
    """By a new slice, by one that goes, and by a claim that gives its devices back."""
    cluster = Cluster({"a": 1, "b": 0})
    cluster.claim("one")
    pod = cluster.pod("p", "one")
    assert cluster.fits(pod) == ("a",)
    cluster.publish("b", 2)
    assert cluster.fits(pod) == ("a", "b")
    cluster.devices.remove("ResourceSlice", "a-gpus")
    assert cluster.fits(pod) == ("b",)
    cluster.claim("all", 2)
    other = cluster.pod("other", "all")
    assert cluster.fits(other) == ("b",)
    cluster.reserve(other, "b")
    assert cluster.fits(pod) == ()
    cluster.devices.put(replace(cluster.devices.claims["default/all"], allocation=None))
    assert cluster.fits(pod) == ("b",)


def test_a_selector_is_evaluated_once_for_each_device() -> None:
    """However many pods and claims there are."""
    cluster = Cluster({"a": 4, "b": 4})
    for number in range(5):
        cluster.claim(f"c{number}")
        pod = cluster.pod(f"p{number}", f"c{number}")
        node = cluster.fits(pod)[0]
        cluster.reserve(pod, node)
    assert cluster.selectors.evaluations <= 8


def test_reservations_are_restored_from_a_checkpoint() -> None:
    """With what they were before, so that they can be taken back."""
    cluster = Cluster({"a": 1})
    before = cluster.claim("one")
    pod = cluster.pod("p", "one")
    assert cluster.fits(pod) == ("a",)
    cluster.reserve(pod, "a")
    plugin = next(plugin for plugin in cluster.framework.plugins if plugin.name == NAME)
    saved = plugin.saved_state(cluster.snapshot)  # type: ignore[attr-defined]
    other = Cluster({"a": 1})
    other.claim("one")
    restored = next(plugin for plugin in other.framework.plugins if plugin.name == NAME)
    restored.restore_state(saved, other.snapshot)  # type: ignore[attr-defined]
    assert other.devices.claims == cluster.devices.claims
    assert other.devices.in_use == cluster.devices.in_use
    restored.unreserve(pod, 0, other.snapshot)  # type: ignore[attr-defined]
    assert other.devices.claims["default/one"] == before
    assert other.devices.in_use == InUse()


def test_a_pod_is_held_back_until_its_claims_are_there() -> None:
    """The gates of the namespace's pods change before the event of the claim is sent."""
    scheduler = scheduler_of("v1.34")
    pod = Cluster({}).pod("p", "one", "two")
    assert scheduler.put_pod(pod) == [QueueAdd(pod=pod, gates=(NAME,))]
    one, two = (ResourceClaim(namespace="default", name=name, uid=name) for name in ("one", "two"))
    assert labels(scheduler.put_object(replace(two, namespace="other"))) == ["ResourceClaimAdd"]
    assert labels(scheduler.put_object(one)) == ["ResourceClaimAdd"]
    free, *moves = scheduler.put_object(two)
    assert free == SetGates(pod=pod, gates=())
    assert labels(moves) == ["ResourceClaimAdd"]
    held = SetGates(pod=pod, gates=(NAME,))
    assert scheduler.remove_object("ResourceClaim", "default", "one") == [held]


def test_a_queue_without_gates_receives_the_pod_when_its_claims_are_there() -> None:
    """Once: the pod stays there when a claim goes."""
    scheduler = scheduler_of("v1.20")
    pod = Cluster({}).pod("p", "one")
    one = ResourceClaim(namespace="default", name="one", uid="one")
    assert scheduler.put_pod(pod) == []
    assert scheduler.put_object(one)[0] == QueueAdd(pod=pod)
    assert scheduler.remove_object("ResourceClaim", "default", "one") == []
    assert QueueAdd(pod=pod) not in scheduler.put_object(one)


def scheduler_of(queue: str) -> Scheduler:
    """Return a scheduler that allocates devices, with a queue of that version."""
    return Scheduler(
        SchedulerOptions(
            rules=RULES["v1.34"], queue=QUEUE_TRAITS[queue], matches=DeviceSelectors(multiple=False)
        )
    )


def labels(steps: Iterable[QueueStep]) -> list[str]:
    """Return the labels of moves, and the names of other steps."""
    return [step.label if isinstance(step, Move) else type(step).__name__ for step in steps]


def test_pods_fit_as_if_they_had_no_claims_where_these_are_ignored() -> None:
    """Where a cluster's devices are not known."""
    snapshot = Snapshot()
    snapshot.set_node(make_node("a").capacity(cpu="10", memory="10Gi").obj())
    framework = Framework(snapshot, RULES["v1.34"].profile, SERVED)
    pod = make_pod("p").req({"cpu": "1"}).obj()
    named = (PodClaim(name="c", claim_name="nosuch"),)
    claimed = replace(pod, spec=replace(pod.spec, device_claims=named))
    assert evaluate(framework, claimed).feasible == ("a",)


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["bind", "take back", "end", "slices"]), st.integers(0, 7)),
        max_size=30,
    )
)
def test_no_device_is_allocated_twice(steps: list[tuple[str, int]]) -> None:
    """Whatever is bound, taken back and ended, and however slices change."""
    cluster = Cluster({"a": 2, "b": 3})
    bound: dict[int, str] = {}
    for step, number in steps:
        name = f"c{number}"
        pod = cluster.pod(f"p{number}", name)
        if step == "slices":
            cluster.publish("b", number)
        elif step == "bind" and number not in bound:
            cluster.claim(name, 1 + number % 2)
            nodes = cluster.fits(pod)
            if nodes:
                cluster.reserve(pod, nodes[0])
                bound[number] = nodes[0]
        elif step == "take back" and number in bound:
            cluster.unreserve(pod, bound.pop(number))
        elif step == "end" and number in bound:
            cluster.snapshot.forget(pod.uid)
            cluster.devices.remove("ResourceClaim", f"default/{name}")
            del bound[number]
        counted = Counter[DeviceId](
            device.id
            for claim in cluster.devices.claims.values()
            if claim.allocation is not None
            for device in claim.allocation.devices
        )
        assert set(counted.values()) <= {1}
        assert cluster.devices.in_use.devices == dict(counted)
