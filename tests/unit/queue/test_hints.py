"""Queueing hints: which events may make which plugin pass a pod that it refused."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from services.framework.cluster_event import ObjectEvent, event_of
from services.framework.hints import HintProfile, HintProfiles
from services.framework.plugins.events import IN_TREE, hint_of, registrations
from services.kube.devices import DeviceClass
from services.kube.node import LABEL_HOSTNAME, LABEL_ZONE, Node
from services.kube.pod import Container, ContainerPort, NodeAffinity, Pod, PodSpec
from services.kube.selector import (
    LabelSelector,
    NodeInclusionPolicy,
    NodeSelector,
    NodeSelectorTerm,
    Operator,
    PodAffinity,
    PodAffinityTerm,
    Requirement,
    TopologySpreadConstraint,
    UnsatisfiableAction,
)
from services.kube.storage import (
    BindingMode,
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    TopologyRequirement,
    VolumeAttachment,
)
from services.kube.taints import CORDON, Taint, TaintEffect, Toleration
from services.kube.volumes import (
    AwsElasticBlockStore,
    ClaimSource,
    CsiSource,
    EphemeralSource,
    GcePersistentDisk,
    Volume,
)
from services.queue.core.queued_pod import QueuedPod

GIB = 1 << 30
WEB = LabelSelector(requirements=(Requirement(key="app", operator=Operator.IN, values=("web",)),))
HARD, SOFT = UnsatisfiableAction.DO_NOT_SCHEDULE, UnsatisfiableAction.SCHEDULE_ANYWAY
NO_PROFILES: HintProfiles = MappingProxyType({})
ZONED = TopologySpreadConstraint(
    max_skew=1, topology_key=LABEL_ZONE, when_unsatisfiable=HARD, selector=WEB
)
NEAR_WEB = PodAffinityTerm(topology_key=LABEL_ZONE, selector=WEB)


def waiting(spec: PodSpec, labels: dict[str, str] | None = None) -> QueuedPod:
    """Return the pending pod of a hint."""
    return QueuedPod(
        uid="uid-p", namespace="ns", name="p", spec=spec, labels={} if labels is None else labels
    )


def assigned(
    spec: PodSpec | None = None,
    *,
    app: str = "",
    namespace: str = "ns",
    node_name: str = "n1",
    nominated: str = "",
) -> Pod:
    """Return another pod, on a node unless it is left out."""
    return Pod(
        uid="uid-other",
        namespace=namespace,
        name="other",
        spec=spec or PodSpec(),
        labels={"app": app} if app else {},
        node_name=node_name,
        nominated_node_name=nominated,
    )


def says(
    plugin: str,
    label: str,
    pod: QueuedPod,
    old: object = None,
    new: object = None,
    profiles: HintProfiles = NO_PROFILES,
    version: str = "v1.34",
) -> bool:
    """Return what the plugin's hint answers to an event, under the arguments of `profiles`."""
    hint = hint_of(plugin, label, registrations(profiles, version))
    assert hint is not None, f"{plugin} has no hint for {label}"
    return hint(pod, ObjectEvent.of(label, old, new))


def asking(cpu_milli: int = 100, **more: int) -> PodSpec:
    """Return the spec of a pod that requests CPU, and perhaps more."""
    return PodSpec(containers=(Container(name="c", requests={"cpu": cpu_milli, **more}),))


def roomy(cpu_milli: int = 1000, **more: int) -> Node:
    """Return a node with room."""
    return Node(name="n", allocatable={"cpu": cpu_milli, "pods": 10, **more})


@pytest.mark.parametrize("plugin", sorted({registration.plugin for registration in IN_TREE}))
def test_every_hint_returns_queue_without_an_object(plugin: str) -> None:
    """An event without its objects is what upstream takes for a hint's error, which queues.

    DefaultPreemption alone never decides.
    """
    pod = waiting(PodSpec())
    for registration in IN_TREE:
        if registration.plugin == plugin and registration.hint is not None:
            asked = registration.hint(pod, ObjectEvent(event=registration.event))
            assert asked is (plugin != "DefaultPreemption"), registration.event.label


def test_room_is_looked_for_on_the_empty_node() -> None:
    """A new node must fit the pod; a changed one must also have more of a requested resource."""
    pod = waiting(asking(500, memory=GIB))
    small, large = roomy(400, memory=GIB), roomy(600, memory=GIB)
    assert not says("NodeResourcesFit", "NodeAdd", pod, new=small)
    assert says("NodeResourcesFit", "NodeAdd", pod, new=large)
    change = "NodeAllocatableChange"
    assert says("NodeResourcesFit", change, pod, small, large)
    assert not says("NodeResourcesFit", change, pod, large, large)
    grown = replace(large, allocatable={**large.allocatable, "example.com/gpu": 1})
    assert not says("NodeResourcesFit", change, pod, large, grown)
    assert says("NodeResourcesFit", change, pod, large, roomy(600, memory=GIB, pods=11))


def test_a_pod_without_requests_needs_only_a_pod_slot() -> None:
    """The number of pods counts alone."""
    pod = waiting(PodSpec())
    assert says("NodeResourcesFit", "NodeAdd", pod, new=roomy())
    full = Node(name="n", allocatable={"cpu": 1, "pods": 0})
    assert not says("NodeResourcesFit", "NodeAdd", pod, new=full)


@pytest.mark.parametrize(
    ("gone", "queued"),
    [(assigned(), True), (assigned(node_name=""), False),
     (assigned(node_name="", nominated="n1"), True)],
    ids=["assigned", "pending", "nominated"],
)  # fmt: skip
def test_a_deleted_pod_frees_room_on_its_node_or_nominated_node(gone: Pod, queued: bool) -> None:
    """It did on a node, or where it was nominated."""
    assert says("NodeResourcesFit", "AssignedPodDelete", waiting(asking()), old=gone) is queued


def test_a_pod_that_shrinks_helps_those_who_want_the_same() -> None:
    """Of an assigned pod; the waiting pod's own smaller request always helps."""
    label = "AssignedPodScaleDown"
    old, new = assigned(asking(200, memory=GIB)), assigned(asking(100, memory=GIB))
    assert says("NodeResourcesFit", label, waiting(asking(1)), old, new)
    assert not says("NodeResourcesFit", label, waiting(asking(0, memory=1)), old, new)
    pending = replace(new, node_name="")
    assert not says("NodeResourcesFit", label, waiting(asking(1)), old, pending)
    pod = waiting(asking(1))
    assert says("NodeResourcesFit", "UnschedulablePodScaleDown", pod, pod, pod)


def test_a_node_must_come_to_match_the_affinity() -> None:
    """A node that matched before its change could have been had already."""
    required = NodeSelector(
        terms=(
            NodeSelectorTerm(
                match_expressions=(Requirement(key="zone", operator=Operator.EXISTS),)
            ),
        )
    )
    pod = waiting(
        PodSpec(node_selector={"disk": "ssd"}, node_affinity=NodeAffinity(required=required))
    )
    bare = Node(name="n", labels={"disk": "ssd"})
    match = Node(name="n", labels={"disk": "ssd", "zone": "a"})
    assert says("NodeAffinity", "NodeAdd", pod, new=match)
    assert not says("NodeAffinity", "NodeAdd", pod, new=bare)
    assert says("NodeAffinity", "NodeLabelChange", pod, bare, match)
    assert not says("NodeAffinity", "NodeLabelChange", pod, match, match)
    assert not says("NodeAffinity", "NodeLabelChange", pod, match, bare)


def test_a_node_must_lose_the_last_taint_that_repels() -> None:
    """PreferNoSchedule repels no pod."""
    taint = Taint(key="k", effect=TaintEffect.NO_EXECUTE)
    soft = Taint(key="k", effect=TaintEffect.PREFER_NO_SCHEDULE)
    tainted, free = Node(name="n", taints=(taint,)), Node(name="n", taints=(soft,))
    pod = waiting(PodSpec())
    assert says("TaintToleration", "NodeAdd", pod, new=free)
    assert not says("TaintToleration", "NodeAdd", pod, new=tainted)
    assert says("TaintToleration", "NodeTaintChange", pod, tainted, free)
    assert not says("TaintToleration", "NodeTaintChange", pod, free, free)
    bold = waiting(PodSpec(tolerations=(Toleration(operator="Exists"),)))
    assert not says("TaintToleration", "NodeTaintChange", bold, tainted, tainted)


@pytest.mark.parametrize("plugin", ["TaintToleration", "NodeUnschedulable"])
def test_only_a_toleration_of_the_same_pod_helps(plugin: str) -> None:
    """Another pod's does not."""
    label = "UnschedulablePodTolerationChange"
    spec = PodSpec(tolerations=(Toleration(key=CORDON.key, operator="Exists"),))
    pod = waiting(spec)
    assert says(plugin, label, pod, waiting(PodSpec()), pod)
    assert not says(plugin, label, pod, pod, pod._replace(uid="uid-another"))


def test_a_cordon_is_lifted_by_the_right_toleration_only() -> None:
    """NodeUnschedulable asks whether the toleration is for a cordon."""
    other = waiting(PodSpec(tolerations=(Toleration(key="other", operator="Exists"),)))
    label = "UnschedulablePodTolerationChange"
    assert not says("NodeUnschedulable", label, other, other, other)


def test_a_node_must_be_uncordoned() -> None:
    """Or come so."""
    pod = waiting(PodSpec())
    open_, shut = Node(name="n"), Node(name="n", unschedulable=True)
    assert says("NodeUnschedulable", "NodeAdd", pod, new=open_)
    assert not says("NodeUnschedulable", "NodeAdd", pod, new=shut)
    assert says("NodeUnschedulable", "NodeTaintChange", pod, shut, open_)
    assert not says("NodeUnschedulable", "NodeTaintChange", pod, open_, open_)


def serving(port: int, host_ip: str = "", protocol: str = "TCP") -> PodSpec:
    """Return a spec with one host port."""
    opened = ContainerPort(host_port=port, host_ip=host_ip, protocol=protocol)
    return PodSpec(containers=(Container(name="c", ports=(opened,)),))


def test_a_freed_host_port_must_be_one_that_is_wanted() -> None:
    """Address and protocol count; every address conflicts with any."""
    pod = waiting(serving(80, "10.0.0.1"))
    for spec, queued in (
        (serving(80), True),
        (serving(80, "10.0.0.1"), True),
        (serving(80, "10.0.0.2"), False),
        (serving(80, protocol="UDP"), False),
        (serving(81), False),
    ):
        gone = assigned(spec)
        assert says("NodePorts", "AssignedPodDelete", pod, old=gone) is queued
    pending = assigned(serving(80), node_name="")
    assert not says("NodePorts", "AssignedPodDelete", pod, old=pending)


def test_spread_looks_at_pods_of_the_same_namespace_that_count() -> None:
    """Coming or going; a change must turn whether the pod counts."""
    pod = waiting(PodSpec(topology_spread_constraints=(ZONED,)))
    web, plain = assigned(app="web"), assigned(app="db")
    assert says("PodTopologySpread", "AssignedPodAdd", pod, new=web)
    assert not says("PodTopologySpread", "AssignedPodAdd", pod, new=plain)
    assert says("PodTopologySpread", "AssignedPodDelete", pod, old=web)
    assert says("PodTopologySpread", "AssignedPodLabelChange", pod, web, plain)
    assert not says("PodTopologySpread", "AssignedPodLabelChange", pod, web, web)
    far = assigned(app="web", namespace="other")
    assert not says("PodTopologySpread", "AssignedPodAdd", pod, new=far)
    pending = assigned(app="web", node_name="")
    assert not says("PodTopologySpread", "AssignedPodDelete", pod, old=pending)


def test_a_toleration_helps_where_a_constraint_honours_taints() -> None:
    """Nodes that repelled the pod were left out of its count."""
    honours = replace(ZONED, node_taints_policy=NodeInclusionPolicy.HONOR)
    label = "UnschedulablePodTolerationChange"
    for constraint, queued in ((honours, True), (ZONED, False)):
        old = waiting(PodSpec(topology_spread_constraints=(constraint,)))
        spec = PodSpec(
            topology_spread_constraints=(constraint,), tolerations=(Toleration(operator="Exists"),)
        )
        new = waiting(spec)
        assert says("PodTopologySpread", label, new, old, new) is queued


def test_spread_looks_at_nodes_with_all_topology_keys() -> None:
    """Nodes are added, removed, or change their domain or taints."""
    both = replace(ZONED, topology_key=LABEL_HOSTNAME)
    pod = waiting(PodSpec(topology_spread_constraints=(ZONED, both)))
    bare = Node(name="n", labels={LABEL_ZONE: "a"})
    here = Node(name="n", labels={LABEL_ZONE: "a", LABEL_HOSTNAME: "n"})
    there = replace(here, labels={**here.labels, LABEL_ZONE: "b"})
    assert says("PodTopologySpread", "NodeAdd", pod, new=here)
    assert not says("PodTopologySpread", "NodeAdd", pod, new=bare)
    assert says("PodTopologySpread", "NodeDelete", pod, old=here)
    assert not says("PodTopologySpread", "NodeDelete", pod, old=bare)
    assert says("PodTopologySpread", "NodeLabelChange", pod, here, there)
    assert says("PodTopologySpread", "NodeLabelChange", pod, bare, here)
    assert not says("PodTopologySpread", "NodeLabelChange", pod, here, here)
    tainted = replace(here, taints=(CORDON,))
    assert says("PodTopologySpread", "NodeTaintChange", pod, tainted, here)


def test_a_pod_without_constraints_of_its_own_has_its_profiles() -> None:
    """By the selector that the scheduler sent; without one any pod of the namespace may count."""
    defaults = (replace(ZONED, selector=None), replace(ZONED, when_unsatisfiable=SOFT))
    profiles = {"default-scheduler": HintProfile(default_constraints=defaults)}
    pod, web, plain = waiting(PodSpec()), assigned(app="web"), assigned(app="db")
    told = pod._replace(spread_selector=WEB)
    far = assigned(app="web", namespace="other")
    for pending, other, queued in (
        (pod, plain, True),
        (pod, far, False),
        (told, plain, False),
        (told, web, True),
    ):
        said = says("PodTopologySpread", "AssignedPodAdd", pending, new=other, profiles=profiles)
        assert said is queued
    zoned, bare = Node(name="n", labels={LABEL_ZONE: "a"}), Node(name="n")
    for pending in (pod, told):
        assert says("PodTopologySpread", "NodeAdd", pending, new=zoned, profiles=profiles)
        assert not says("PodTopologySpread", "NodeAdd", pending, new=bare, profiles=profiles)


def test_upstreams_own_default_constraints_forbid_nothing() -> None:
    """No pod counts for them, and every node has all their keys."""
    pod = waiting(PodSpec())
    assert not says("PodTopologySpread", "AssignedPodAdd", pod, new=assigned(app="web"))
    assert says("PodTopologySpread", "NodeAdd", pod, new=Node(name="n"))
    other = waiting(PodSpec(scheduler_name="other"))
    hard = HintProfile(default_constraints=(replace(ZONED, selector=None),))
    profiles = {"default-scheduler": hard}
    assert says("PodTopologySpread", "NodeAdd", other, new=Node(name="n"), profiles=profiles)


def test_the_affinity_that_a_profile_adds_must_match_the_node_as_it_is() -> None:
    """But its change alone does not, as in upstream."""
    term = NodeSelectorTerm(
        match_expressions=(Requirement(key="pool", operator=Operator.IN, values=("a",)),)
    )
    profiles = {"default-scheduler": HintProfile(added_required=NodeSelector(terms=(term,)))}
    pod = waiting(PodSpec(node_selector={"disk": "ssd"}))
    both, pool, disk = (
        Node(name="n", labels=labels)
        for labels in ({"disk": "ssd", "pool": "a"}, {"pool": "a"}, {"disk": "ssd"})
    )
    change = "NodeLabelChange"
    assert says("NodeAffinity", "NodeAdd", pod, new=both, profiles=profiles)
    assert not says("NodeAffinity", "NodeAdd", pod, new=disk, profiles=profiles)
    assert says("NodeAffinity", "NodeAdd", pod, new=disk)
    assert says("NodeAffinity", change, pod, pool, both, profiles=profiles)
    assert not says("NodeAffinity", change, pod, disk, both, profiles=profiles)


def test_affinity_wants_a_match_and_anti_affinity_wants_one_less() -> None:
    """One assigned pod must match all terms."""
    near = waiting(PodSpec(pod_affinity=PodAffinity(required=(NEAR_WEB,))))
    away = waiting(PodSpec(pod_anti_affinity=PodAffinity(required=(NEAR_WEB,))))
    web, plain = assigned(app="web"), assigned(app="db")
    plugin, change = "InterPodAffinity", "AssignedPodLabelChange"
    assert says(plugin, "AssignedPodAdd", near, new=web)
    assert not says(plugin, "AssignedPodAdd", near, new=plain)
    assert not says(plugin, "AssignedPodDelete", near, old=web)
    assert says(plugin, change, near, plain, web)
    assert not says(plugin, change, near, web, plain)
    assert says(plugin, "AssignedPodDelete", away, old=web)
    assert not says(plugin, "AssignedPodAdd", away, new=web)
    assert says(plugin, change, away, web, plain)
    assert not says(plugin, change, away, plain, web)
    assert not says(plugin, "AssignedPodAdd", near, new=assigned(app="web", namespace="other"))
    assert not says(plugin, "AssignedPodAdd", near, new=assigned(app="web", node_name=""))


@pytest.mark.parametrize(("version", "queued"), [("v1.34", False), ("v1.36", True)])
def test_since_v1_36_nominated_pods_count_and_a_deleted_pods_own_terms(
    version: str, queued: bool
) -> None:
    """So does a change of the pod's own labels."""
    near = waiting(PodSpec(pod_affinity=PodAffinity(required=(NEAR_WEB,))), {"app": "db"})
    away = waiting(PodSpec(pod_anti_affinity=PodAffinity(required=(NEAR_WEB,))))
    web = waiting(PodSpec(), {"app": "web"})
    nominated = assigned(app="web", node_name="", nominated="n1")
    unwelcoming = assigned(away.spec, app="db")

    def says_here(label: str, pod: QueuedPod, old: object = None, new: object = None) -> bool:
        return says("InterPodAffinity", label, pod, old, new, version=version)

    assert says_here("AssignedPodDelete", away, nominated) is queued
    assert says_here("AssignedPodAdd", near, None, nominated) is queued
    assert says_here("AssignedPodDelete", web, unwelcoming) is queued
    assert not says_here("AssignedPodDelete", near, unwelcoming)
    assert not says_here("AssignedPodAdd", web, None, unwelcoming)
    before = near._replace(labels={})
    assert says_here("UnschedulablePodLabelChange", near, before, near) is queued
    assert not says_here("AssignedPodDelete", away, assigned(app="web", node_name=""))
    spread = waiting(PodSpec(topology_spread_constraints=(ZONED,)))
    found = says("PodTopologySpread", "AssignedPodDelete", spread, nominated, version=version)
    assert found is queued
    held = PodSpec(volumes=(Volume(name="v", source=ClaimSource(claim_name="c")),))
    gone = assigned(held, node_name="", nominated="n1")
    plugin, label = "NodeVolumeLimits", "AssignedPodDelete"
    assert says(plugin, label, waiting(PodSpec()), gone, version=version) is queued


def test_a_deleted_pods_term_that_selects_namespaces_may_mean_the_pods() -> None:
    """The event has the labels of the deleted pod's namespace only."""
    term = replace(NEAR_WEB, namespace_selector=WEB)
    spec = PodSpec(pod_anti_affinity=PodAffinity(required=(term,)))
    pod = waiting(PodSpec(), {"app": "web"})
    hint = hint_of("InterPodAffinity", "AssignedPodDelete", registrations({}, "v1.36"))
    assert hint is not None
    for namespace, queued in (("ns", False), ("other", True)):
        event = ObjectEvent.of("AssignedPodDelete", assigned(spec, namespace=namespace))
        assert hint(pod, replace(event, namespace_labels={"app": "db"})) is queued


def test_a_term_can_select_namespaces_by_their_labels() -> None:
    """Those come with the event."""
    term = replace(NEAR_WEB, namespace_selector=WEB)
    pod = waiting(PodSpec(pod_affinity=PodAffinity(required=(term,))))
    hint = hint_of("InterPodAffinity", "AssignedPodAdd")
    assert hint is not None
    web = assigned(app="web", namespace="other")
    for labels, queued in (({"app": "web"}, True), ({}, False)):
        event = event_of("AssignedPodAdd")
        assert hint(pod, ObjectEvent(event=event, new=web, namespace_labels=labels)) is queued


def test_a_node_joins_a_domain_of_the_affinity_or_leaves_one_of_the_other() -> None:
    """A new node may always be free of those that the pod keeps away from."""
    near = waiting(PodSpec(pod_affinity=PodAffinity(required=(NEAR_WEB,))))
    away = waiting(PodSpec(pod_anti_affinity=PodAffinity(required=(NEAR_WEB,))))
    bare, here = Node(name="n"), Node(name="n", labels={LABEL_ZONE: "a"})
    there = Node(name="n", labels={LABEL_ZONE: "b"})
    plugin, change = "InterPodAffinity", "NodeLabelChange"
    assert says(plugin, "NodeAdd", near, new=here)
    assert not says(plugin, "NodeAdd", near, new=bare)
    assert says(plugin, "NodeAdd", away, new=bare)
    assert says(plugin, change, near, bare, here)
    assert says(plugin, change, near, here, there)
    assert not says(plugin, change, near, here, bare)
    assert says(plugin, change, away, here, bare)
    assert not says(plugin, change, away, bare, here)


def test_a_gate_that_is_gone_must_be_the_pods_own() -> None:
    """Another pod's does not."""
    pod = waiting(PodSpec())
    label = "UnschedulablePodSchedulingGatesEliminated"
    assert says("SchedulingGates", label, pod, pod, pod)
    assert not says("SchedulingGates", label, pod, pod, pod._replace(uid="uid-another"))


def mounting(*sources: ClaimSource | EphemeralSource | CsiSource | GcePersistentDisk
             | AwsElasticBlockStore) -> PodSpec:  # fmt: skip
    """Return a spec with volumes v0, v1 and so on."""
    return PodSpec(
        volumes=tuple(
            Volume(name=f"v{index}", source=source) for index, source in enumerate(sources)
        )
    )


CLAIM = PersistentVolumeClaim(namespace="ns", name="data")
MADE = PersistentVolumeClaim(namespace="ns", name="p-v0")


@pytest.mark.parametrize(
    ("plugin", "made"),
    [("VolumeBinding", True), ("VolumeZone", False), ("VolumeRestrictions", False),
     ("NodeVolumeLimits", True)],
)  # fmt: skip
def test_a_claim_must_be_the_pods(plugin: str, made: bool) -> None:
    """Some plugins look at those made for ephemeral volumes too."""
    pod = waiting(mounting(ClaimSource(claim_name="data")))
    label = "PersistentVolumeClaimAdd"
    assert says(plugin, label, pod, new=CLAIM)
    assert not says(plugin, label, pod, new=replace(CLAIM, name="other"))
    assert not says(plugin, label, pod, new=replace(CLAIM, namespace="other"))
    ephemeral = waiting(mounting(EphemeralSource()))
    assert says(plugin, label, ephemeral, new=MADE) is made


def test_volume_restrictions_look_for_a_shared_disk_or_claim() -> None:
    """For a deleted pod of the same namespace."""
    writer, reader = GcePersistentDisk(pd_name="d"), GcePersistentDisk(pd_name="d", read_only=True)
    disk = AwsElasticBlockStore(volume_id="v", read_only=True)
    claim = ClaimSource(claim_name="data")
    for wanted, held, queued in (
        (reader, writer, True),
        (reader, reader, False),
        (disk, disk, True),
        (claim, claim, True),
        (claim, ClaimSource(claim_name="other"), False),
        (disk, writer, False),
    ):
        gone = assigned(mounting(held))
        pod = waiting(mounting(wanted))
        assert says("VolumeRestrictions", "AssignedPodDelete", pod, old=gone) is queued
        far = replace(gone, namespace="other")
        assert not says("VolumeRestrictions", "AssignedPodDelete", pod, old=far)


def test_volume_limits_look_for_a_slot() -> None:
    """A pod with a counted volume leaves its node, or a volume is detached."""
    pod = waiting(mounting(ClaimSource(claim_name="data")))
    label = "AssignedPodDelete"
    assert says("NodeVolumeLimits", label, pod, old=assigned(pod.spec))
    assert says("NodeVolumeLimits", label, pod, old=assigned(mounting(EphemeralSource())))
    assert not says("NodeVolumeLimits", label, pod, old=assigned())
    assert not says("NodeVolumeLimits", label, pod, old=assigned(pod.spec, node_name=""))
    detached = VolumeAttachment(name="a", attacher="ebs.csi.aws.com")
    gone = "VolumeAttachmentDelete"
    assert says("NodeVolumeLimits", gone, pod, old=detached)
    inline = waiting(mounting(AwsElasticBlockStore(volume_id="v")))
    assert says("NodeVolumeLimits", gone, inline, old=detached)
    assert not says("NodeVolumeLimits", gone, inline, old=replace(detached, attacher="other"))


def test_volume_binding_looks_at_classes_nodes_drivers_and_capacities() -> None:
    """New objects always queue the pod; a change queues it only if it can help."""
    pod, plugin = waiting(mounting(CsiSource(driver="d"))), "VolumeBinding"
    storage_class = StorageClass(name="c")
    zoned = replace(storage_class, allowed_topologies=((TopologyRequirement(key="z"),),))
    assert says(plugin, "StorageClassAdd", pod, new=storage_class)
    assert says(plugin, "StorageClassUpdate", pod, storage_class, zoned)
    assert not says(plugin, "StorageClassUpdate", pod, zoned, zoned)
    node = CsiNode(name="n")
    migrated = CsiNode(name="n", annotations={"storage.alpha.kubernetes.io/migrated-plugins": "x"})
    assert says(plugin, "CSINodeAdd", pod, new=node)
    assert says(plugin, "CSINodeUpdate", pod, node, migrated)
    assert not says(plugin, "CSINodeUpdate", pod, node, node)
    counts, free = CsiDriver(name="d", storage_capacity=True), CsiDriver(name="d")
    assert says(plugin, "CSIDriverUpdate", pod, counts, free)
    assert not says(plugin, "CSIDriverUpdate", pod, free, counts)
    assert not says(plugin, "CSIDriverUpdate", waiting(PodSpec()), counts, free)
    small = CsiStorageCapacity(namespace="ns", name="c", capacity_bytes=1)
    large = replace(small, capacity_bytes=2)
    assert says(plugin, "CSIStorageCapacityAdd", pod, new=small)
    assert says(plugin, "CSIStorageCapacityUpdate", pod, small, large)
    assert not says(plugin, "CSIStorageCapacityUpdate", pod, large, small)
    bounded = replace(large, maximum_volume_size_bytes=1)
    assert not says(plugin, "CSIStorageCapacityUpdate", pod, small, bounded)


def test_volume_zone_looks_at_zones_and_classes_that_wait() -> None:
    """A set of zones is the same in any order."""
    pod, plugin = waiting(PodSpec()), "VolumeZone"
    waits = StorageClass(name="c", binding_mode=BindingMode.WAIT_FOR_FIRST_CONSUMER)
    assert says(plugin, "StorageClassAdd", pod, new=waits)
    assert not says(plugin, "StorageClassAdd", pod, new=StorageClass(name="c"))
    here = PersistentVolume(name="v", labels={LABEL_ZONE: "a__b"})
    same = replace(here, labels={LABEL_ZONE: "b__a", "other": "x"})
    assert says(plugin, "PersistentVolumeAdd", pod, new=here)
    assert not says(plugin, "PersistentVolumeUpdate", pod, here, same)
    assert says(plugin, "PersistentVolumeUpdate", pod, here, PersistentVolume(name="v"))


@pytest.mark.parametrize(
    ("name", "before", "after", "queued"),
    [
        ("other", None, "example.com/gpu", True),
        ("other", None, "example.com/tpu", False),
        ("gpu", None, None, True),
        ("other", "example.com/tpu", "example.com/gpu", True),
        ("other", "example.com/gpu", "example.com/tpu", False),
    ],
)
def test_since_v1_36_a_device_class_may_provide_a_missing_extended_resource(
    name: str, before: str | None, after: str | None, queued: bool
) -> None:
    """Under the resource's name, or where it is new under its own."""
    requests = {"example.com/gpu": 1, "deviceclass.resource.kubernetes.io/gpu": 1}
    pod = waiting(PodSpec(containers=(Container(name="c", requests=requests),)))
    new = DeviceClass(name=name, extended_resource_name=after)
    old = None if before is None else DeviceClass(name=name, extended_resource_name=before)
    plugin, label = "NodeResourcesFit", "DeviceClassAdd" if old is None else "DeviceClassUpdate"
    assert says(plugin, label, pod, old, new, version="v1.36") is queued
    assert not says(plugin, "DeviceClassUpdate", pod, new, new, version="v1.36")
