"""Rollouts of generated Deployments, in clusters where pods are bound late, end, fail and go.

Whatever happens, a rollout has no more pods than replicas + maxSurge, and deletes no available pod
where fewer than replicas - maxUnavailable would be left.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from replay.world.api.pod_record import PodRecord
from replay.world.controllers.workloads.rolling_update import (
    Bounds,
    SizedSet,
    bounds_of,
    rescaled,
    rolled,
)
from replay.world.models import Models
from reprieve.kube.v1beta1 import workloads_pb2
from tests.unit.world.builders import S, World, create, make_deployment, make_node, update
from tests.unit.world.workloads.builders import place

BOUNDS = st.one_of(st.integers(0, 6), st.integers(0, 100).map(lambda percent: f"{percent}%"))
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("release"), st.sampled_from("abcd")),
        st.tuples(st.just("broken"), st.sampled_from("xy")),
        st.tuples(st.just("wait"), st.integers(1, 60)),
        st.tuples(st.just("bind"), st.integers(1, 5)),
        st.tuples(st.just("fail"), st.integers(0, 20)),
        st.tuples(st.just("unready"), st.integers(0, 20)),
    ),
    min_size=1,
    max_size=25,
)


@dataclass
class Rollouts:
    """A Deployment that is released again and again; `check` follows each event."""

    replicas: int
    surge: int | str
    unavailable: int | str
    world: World = field(default_factory=lambda: World(models=Models(ready_delay_ns=10 * S)))
    now_ns: int = 0

    def __post_init__(self) -> None:
        """Start with all replicas ready."""
        self.release = self.version("a")
        self.world.feed(0, create(make_node()), create(self.release))
        place(self.world, 0)
        self.wait(10)

    @property
    def bounds(self) -> Bounds:
        """Return the Deployment's bounds as numbers."""
        return bounds_of(self.release.spec)

    def version(self, image: str, *, broken: bool = False) -> workloads_pb2.Deployment:
        """Return the Deployment with an image, which may never become ready."""
        made = make_deployment(replicas=self.replicas, image=image)
        rolling = made.spec.strategy.rolling_update
        for bound, value in (
            (rolling.max_surge, self.surge),
            (rolling.max_unavailable, self.unavailable),
        ):
            if isinstance(value, str):
                bound.string_value = value
            else:
                bound.int_value = value
        if broken:
            made.spec.template.metadata.annotations["reprieve/ready-delay"] = "never"
        return made

    def act(self, event: str, value: int | str) -> None:
        """Apply a change, and check the rollout's reaction."""
        match event:
            case "release" | "broken":
                self.release = self.version(str(value), broken=event == "broken")
                self.settled(lambda: self.world.inputs.feed(self.now_ns, update(self.release)))
            case "wait":
                self.wait(int(value))
            case "bind":
                self.bind(int(value))
            case _:
                pods = [pod for pod in self.active() if pod.node_name]
                if pods:
                    self.lose(pods[int(value) % len(pods)], ends=event == "fail")

    def wait(self, length_s: int) -> None:
        """Let time pass."""
        until_ns = self.now_ns + length_s * S
        while (at_ns := self.world.timeline.next_ns()) is not None and at_ns <= until_ns:
            self.now_ns = at_ns
            for action in self.world.timeline.take_due(at_ns):
                self.world.act(at_ns, action)
            self.settled(lambda: None)
        self.now_ns = until_ns

    def bind(self, count: int) -> None:
        """Bind some of the pending pods."""
        for pod in list(self.world.cluster.pending.values())[:count]:
            self.world.cluster.bind(self.now_ns, pod, "n")
            self.world.lifecycle.bound(self.now_ns, pod)
        self.wait(0)

    def lose(self, pod: PodRecord, *, ends: bool) -> None:
        """Let a pod fail, or stop being ready."""
        if ends:
            pod.message.status.phase = "Failed"
        for condition in pod.message.status.conditions:
            if condition.type == "Ready":
                condition.status = "False"
        self.world.cluster.status_changed(self.now_ns, pod)
        self.settled(lambda: None)

    def settled(self, change: object) -> None:
        """Run the controllers, and check their actions."""
        assert callable(change)
        change()
        before = {pod.uid: pod for pod in self.available()}
        self.world.settle(self.now_ns)
        available_uids = {pod.uid for pod in self.available()}
        assert len(self.active()) <= self.bounds.most
        if before.keys() - available_uids:
            assert len(available_uids) >= self.bounds.least_available

    def active(self) -> list[PodRecord]:
        """Return the pods that have not ended and do not terminate."""
        return [pod for pod in self.world.cluster.pods.values() if pod.is_active]

    def available(self) -> list[PodRecord]:
        """Return the active pods that are ready."""
        return [pod for pod in self.active() if pod.is_ready]


@settings(max_examples=150, deadline=None)
@given(replicas=st.integers(1, 12), surge=BOUNDS, unavailable=BOUNDS, events=EVENTS)
def test_a_rollout_keeps_within_its_bounds_whatever_happens(
    replicas: int, surge: int | str, unavailable: int | str, events: list[tuple[str, int | str]]
) -> None:
    """Releases over releases, some of them broken, on a cluster in which pods fail."""
    rollouts = Rollouts(replicas, surge, unavailable)
    for event, value in events:
        rollouts.act(event, value)


@settings(max_examples=100, deadline=None)
@given(replicas=st.integers(1, 12), surge=BOUNDS, unavailable=BOUNDS, events=EVENTS)
def test_an_unobstructed_rollout_completes(
    replicas: int, surge: int | str, unavailable: int | str, events: list[tuple[str, int | str]]
) -> None:
    """A last release that works, and room for its pods: all replicas are of it in the end."""
    rollouts = Rollouts(replicas, surge, unavailable)
    for event, value in events:
        rollouts.act(event, value)
    rollouts.act("release", "last")
    for _ in range(3 * replicas + 3):
        rollouts.bind(100)
        rollouts.wait(60)
    images = [pod.message.spec.containers[0].image for pod in rollouts.available()]
    assert images == ["last"] * replicas
    assert not list(rollouts.world.workloads.unfinished_rollouts(rollouts.now_ns))


SETS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=4)


@given(
    sets=SETS, desired=st.integers(0, 30), surge=st.integers(0, 10), unavailable=st.integers(0, 10)
)
def test_no_step_adds_above_the_surge_or_takes_below_the_available(
    sets: list[tuple[int, int]], desired: int, surge: int, unavailable: int
) -> None:
    """Of ReplicaSets of any sizes: the rule alone, one step."""
    bounds = Bounds(desired=desired, max_surge=surge, max_unavailable=min(unavailable, desired))
    sized = [
        SizedSet(uid=str(index), replicas=size, available=min(size, available))
        for index, (size, available) in enumerate(sets)
    ]
    new, old = sized[-1], sized[:-1]
    sizes = rolled(bounds, new, old)
    total = sum(sizes.get(replica_set.uid, replica_set.replicas) for replica_set in sized)
    grew = any(
        size > replica_set.replicas
        for replica_set in sized
        if (size := sizes.get(replica_set.uid, 0))
    )
    assert not grew or total <= bounds.most
    left = sum(
        min(sizes.get(replica_set.uid, replica_set.replicas), replica_set.available)
        for replica_set in sized
    )
    if sizes.get(new.uid, new.replicas) >= new.replicas and left < sum(
        replica_set.available for replica_set in sized
    ):
        assert left >= bounds.least_available


@given(sets=SETS, desired=st.integers(0, 30), surge=st.integers(0, 10))
def test_scaling_during_a_rollout_shares_exactly_what_is_allowed(
    sets: list[tuple[int, int]], desired: int, surge: int
) -> None:
    """No share is lost to rounding, unless the largest set has nothing left to give."""
    bounds, total = Bounds(desired=desired, max_surge=surge), sum(size for size, _ in sets)
    sized = [
        SizedSet(uid=str(index), replicas=size, desired=total, most=total)
        for index, (size, _) in enumerate(sets)
    ]
    sizes = rescaled(bounds, sized[-1], sized[:-1], rolls=True, pods=total)
    assert all(size >= 0 for size in sizes.values())
    if sum(size > 0 for size, _ in sets) > 1:
        allowed, largest = bounds.most if desired else 0, next(iter(sizes.values()))
        assert sum(sizes.values()) == allowed or (not largest and sum(sizes.values()) > allowed)
