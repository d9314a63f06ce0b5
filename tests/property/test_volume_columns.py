"""Cached verdicts of the volume plugins equal recomputed ones while the cluster changes."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from services.framework.runtime.framework import Framework
from services.framework.snapshot.catalog import CatalogObject
from services.framework.snapshot.node_view import NodeView
from services.framework.snapshot.snapshot import Snapshot
from services.kube.node import Node
from services.kube.pod import Pod, PodSpec
from services.kube.storage import (
    BindingMode,
    CsiNode,
    CsiNodeDriver,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumePhase,
)
from services.kube.volumes import ClaimSource, CsiSource, GcePersistentDisk, Volume
from services.scheduler.core.cycle.evaluate import NodeVerdicts
from tests.builders import make_node, make_pod
from tests.cycles import evaluate, filter_verdicts

NODES = ("a", "b", "c")
CLAIMS = ("csi0", "csi1", "solo", "wait")
SOURCES: tuple[ClaimSource | GcePersistentDisk, ...] = (
    *(ClaimSource(claim_name=name) for name in CLAIMS),
    GcePersistentDisk(pd_name="d"),
    GcePersistentDisk(pd_name="d", read_only=True),
)
SPECS = tuple(
    replace(make_pod().obj().spec, volumes=(Volume(name="v", source=source),)) for source in SOURCES
)
SOLO = CLAIMS.index("solo")
"""The claim for one pod: two that use it are for upstream's dry run what one is."""
BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
Change = tuple[str, int, int]
changes = st.lists(
    st.tuples(
        st.sampled_from(["pod", "gone", "node", "limit", "volume"]),
        st.integers(0, 7),
        st.integers(0, 5),
    ),
    max_size=25,
)


def claims() -> list[PersistentVolumeClaim]:
    """Return two bound claims of a driver, one for a single pod, and one that waits."""
    made = [
        PersistentVolumeClaim(
            namespace="default", name=name, annotations=BOUND, volume_name=f"pv-{name}"
        )
        for name in CLAIMS[:3]
    ]
    made[2] = replace(made[2], access_modes=("ReadWriteOncePod",))
    waiting = PersistentVolumeClaim(
        namespace="default", name="wait", storage_class_name="local", request_bytes=5
    )
    return [*made, waiting]


class World:
    """A cluster as plain state, from which a snapshot can be made at any time."""

    def __init__(self) -> None:
        self.pods: dict[int, tuple[PodSpec, str]] = {}
        self.zones = dict.fromkeys(NODES, 0)
        self.limits = dict.fromkeys(NODES, 2)
        self.sizes = [5, 9]

    def change(self, change: Change, snapshot: Snapshot) -> None:
        """Change the state, and the snapshot with it."""
        kind, which, how = change
        name = NODES[which % 3]
        match kind:
            case "pod":
                if which not in self.pods and not (how == SOLO and self._has(SOLO)):
                    self.pods[which] = (SPECS[how], name)
                    snapshot.set_pod(self._pod(which))
            case "gone":
                if self.pods.pop(which, None) is not None:
                    snapshot.remove_pod(f"uid-{which}")
            case "node":
                self.zones[name] = how % 2
                snapshot.set_node(self._node(name))
            case "limit":
                self.limits[name] = how % 3
                snapshot.catalog.put(self._csi_node(name))
            case "volume":
                self.sizes[which % 2] = how * 2
                snapshot.catalog.put(self._volume(which % 2))

    def _has(self, source: int) -> bool:
        return any(spec is SPECS[source] for spec, _ in self.pods.values())

    def snapshot(self) -> Snapshot:
        """Return the cluster as it is now."""
        snapshot = Snapshot()
        local = StorageClass(
            name="local",
            provisioner="kubernetes.io/no-provisioner",
            binding_mode=BindingMode.WAIT_FOR_FIRST_CONSUMER,
        )
        objects: list[CatalogObject] = [*claims(), local, self._volume(0), self._volume(1)]
        for obj in objects:
            snapshot.catalog.put(obj)
        for name in CLAIMS[:3]:
            source = CsiSource(driver="csi.x", volume_handle=name)
            snapshot.catalog.put(PersistentVolume(name=f"pv-{name}", source=source))
        for name in NODES:
            snapshot.set_node(self._node(name))
            snapshot.catalog.put(self._csi_node(name))
        for number in self.pods:
            snapshot.set_pod(self._pod(number))
        return snapshot

    def _pod(self, number: int) -> Pod:
        spec, node_name = self.pods[number]
        made = make_pod(f"p{number}").uid(f"uid-{number}").obj()
        return replace(made, spec=spec, node_name=node_name)

    def _node(self, name: str) -> Node:
        return make_node(name).label("zone", str(self.zones[name])).obj()

    def _csi_node(self, name: str) -> CsiNode:
        driver = CsiNodeDriver(name="csi.x", allocatable_count=self.limits[name])
        return CsiNode(name=name, drivers=(driver,))

    def _volume(self, number: int) -> PersistentVolume:
        affinity = make_pod().node_affinity_in("zone", str(number)).obj().spec.node_affinity
        assert affinity is not None
        return PersistentVolume(
            name=f"local{number}",
            capacity_bytes=self.sizes[number],
            storage_class_name="local",
            node_affinity=affinity.required,
            phase=VolumePhase.AVAILABLE,
        )


def told(verdicts: NodeVerdicts) -> object:
    """Return the verdicts that must be equal."""
    return (verdicts.feasible, dict(verdicts.refusals), verdicts.skipped_filters)


@settings(max_examples=60)
@given(changes=changes)
def test_kept_verdicts_are_those_of_a_fresh_look(changes: list[Change]) -> None:
    """After each change, for a pod of each kind."""
    world = World()
    snapshot = world.snapshot()
    framework = Framework(snapshot)
    waiting = [replace(make_pod(f"q{i}").obj(), spec=spec) for i, spec in enumerate(SPECS)]
    for change in changes:
        world.change(change, snapshot)
        fresh = Framework(world.snapshot())
        for pod in waiting:
            assert told(evaluate(framework, pod)) == told(evaluate(fresh, pod))


@settings(max_examples=60)
@given(changes=changes, victims=st.sets(st.integers(0, 7)))
def test_a_dry_run_equals_the_cluster_without_the_victims(
    changes: list[Change], victims: set[int]
) -> None:
    """On the victims' node; pods elsewhere stay as they are."""
    world = World()
    snapshot = world.snapshot()
    for change in changes:
        world.change(change, snapshot)
    framework = Framework(snapshot)
    for index, spec in enumerate(SPECS):
        pod = replace(make_pod(f"q{index}").obj(), spec=spec)
        verdicts = filter_verdicts(framework, pod)
        for name in NODES:
            row = snapshot.row(name) or 0
            gone = [world._pod(v) for v in victims if world.pods.get(v, (None, ""))[1] == name]
            view = NodeView.of(snapshot, row)
            without = World()
            without.__dict__.update(world.__dict__)
            without.pods = {
                k: v for k, v in world.pods.items() if f"uid-{k}" not in {g.uid for g in gone}
            }
            fresh = Framework(without.snapshot())
            for pod_gone in gone:
                view.remove(pod_gone)
            codes = [
                column.plugin.filter_node(column.pre.data, view)
                for column in verdicts.columns.values()
            ]
            refusal = evaluate(fresh, pod).refusals.get(name)
            assert any(codes) == (refusal is not None)
