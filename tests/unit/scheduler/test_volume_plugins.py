"""What the volume plugins say of pods with claims and disks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from services.framework.plugins.in_tree import DEFAULT_PROFILE
from services.framework.plugins.volume_binding.plugin import VolumeBinding
from services.framework.plugins.volume_restrictions.plugin import VolumeRestrictions
from services.framework.profile import ExtensionPoint, PluginSet, Profile
from services.framework.runtime.framework import Framework
from services.framework.snapshot.catalog import CatalogObject
from services.framework.snapshot.node_view import NodeView
from services.framework.snapshot.snapshot import Snapshot
from services.framework.status import Code
from services.framework.volumes.matching import reaches as reaches_volume
from services.framework.volumes.migration import affinity_on
from services.kube.node import Node
from services.kube.pod import OwnerReference, Pod
from services.kube.selector import LabelSelector, NodeSelector, NodeSelectorTerm
from services.kube.storage import (
    BindingMode,
    ClaimPhase,
    ClaimRef,
    CsiDriver,
    CsiNode,
    CsiNodeDriver,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    TopologyRequirement,
    VolumeAttachment,
    VolumePhase,
)
from services.kube.volumes import (
    AwsElasticBlockStore,
    AzureDisk,
    CinderDisk,
    ClaimSource,
    CsiSource,
    EphemeralSource,
    GcePersistentDisk,
    IscsiDisk,
    PortworxVolume,
    RbdImage,
    Volume,
    VsphereDisk,
)
from services.scheduler.core.cycle.evaluate import NodeVerdicts
from tests.builders import make_node, make_pod, requirement
from tests.cycles import evaluate, filter_verdicts

BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
WAIT = StorageClass(
    name="wait", provisioner="csi.x", binding_mode=BindingMode.WAIT_FOR_FIRST_CONSUMER
)
LOCAL = replace(WAIT, name="local", provisioner="kubernetes.io/no-provisioner")


def pod_with(*sources: object, name: str = "pod", node: str = "") -> Pod:
    """Return a pod with volumes of these sources."""
    pod = make_pod(name).obj()
    volumes = tuple(
        Volume(name=f"v{number}", source=source)  # type: ignore[arg-type]  # any source
        for number, source in enumerate(sources)
    )
    return replace(pod, spec=replace(pod.spec, volumes=volumes), node_name=node)


def claim(name: str = "c", **fields: object) -> PersistentVolumeClaim:
    """Return a claim; `volume` binds it."""
    volume = fields.pop("volume", "")
    fields.setdefault("volume_name", volume)
    made = PersistentVolumeClaim(
        namespace="default", name=name, uid=f"uid-{name}", annotations=BOUND if volume else {}
    )
    return replace(made, **fields)  # type: ignore[arg-type]  # by field name


def on(key: str, *values: str) -> NodeSelector:
    """Return the nodes with a label."""
    term = NodeSelectorTerm(match_expressions=(requirement(key, "In", *values),))
    return NodeSelector(terms=(term,))


def snapshot_of(
    nodes: Iterable[Node], objects: Iterable[CatalogObject], pods: Iterable[Pod] = ()
) -> Snapshot:
    """Return a cluster."""
    snapshot = Snapshot()
    for node in nodes:
        snapshot.set_node(node)
    for obj in objects:
        snapshot.catalog.put(obj)
    for pod in pods:
        snapshot.set_pod(pod)
    return snapshot


def judged(
    pod: Pod,
    *objects: CatalogObject,
    nodes: Iterable[Node] = (),
    pods: Iterable[Pod] = (),
    profile: Profile = DEFAULT_PROFILE,
) -> NodeVerdicts:
    """Return the verdicts about a pod, on one plain node "n" where none is given."""
    made = list(nodes) or [make_node("n").obj()]
    return evaluate(Framework(snapshot_of(made, objects, pods), profile), pod)


def refusal(
    pod: Pod, *objects: CatalogObject, pods: Iterable[Pod] = ()
) -> tuple[str, Code, str] | None:
    """Return who refuses a pod on the one node, how and why."""
    status = judged(pod, *objects, pods=pods).refusals.get("n")
    return (status.plugin, status.code, status.message) if status is not None else None


@pytest.mark.parametrize(
    ("wanted", "held", "conflict"),
    [
        (GcePersistentDisk(pd_name="d"), GcePersistentDisk(pd_name="d", read_only=True), True),
        (
            GcePersistentDisk(pd_name="d", read_only=True),
            GcePersistentDisk(pd_name="d", read_only=True),
            False,
        ),
        (GcePersistentDisk(pd_name="d"), GcePersistentDisk(pd_name="e"), False),
        (
            AwsElasticBlockStore(volume_id="d", read_only=True),
            AwsElasticBlockStore(volume_id="d", read_only=True),
            True,
        ),
        (IscsiDisk(target_portal="a", iqn="i"), IscsiDisk(target_portal="b", iqn="i"), True),
        (
            RbdImage(monitors=("a", "b"), image="i", pool="p"),
            RbdImage(monitors=("b", "c"), image="i", pool="p"),
            True,
        ),
        (
            RbdImage(monitors=("a",), image="i", pool="p"),
            RbdImage(monitors=("b",), image="i", pool="p"),
            False,
        ),
        (GcePersistentDisk(pd_name="d"), IscsiDisk(target_portal="a", iqn="d"), False),
    ],
)
def test_a_disk_conflicts_with_the_same_disk_unless_both_only_read(
    wanted: object, held: object, conflict: bool
) -> None:
    """EBS conflicts even among readers."""
    refused = refusal(pod_with(wanted), pods=[pod_with(held, name="other", node="n")])
    expected = ("VolumeRestrictions", Code.UNSCHEDULABLE, "node(s) had no available disk")
    assert refused == (expected if conflict else None)


def test_a_claim_for_one_pod_that_is_used_anywhere_refuses_every_node() -> None:
    """Preemption may cure it on the holder's node alone."""
    solo = claim(volume="pv", access_modes=("ReadWriteOncePod",))
    holder = pod_with(ClaimSource(claim_name="c"), name="holder", node="a")
    nodes = [make_node("a").obj(), make_node("b").obj()]
    pod = pod_with(ClaimSource(claim_name="c"))
    snapshot = snapshot_of(nodes, [solo, PersistentVolume(name="pv")], [holder])
    plugin = VolumeRestrictions()
    verdicts = evaluate(Framework(snapshot), pod)
    assert {status.plugin for status in verdicts.refusals.values()} == {"VolumeRestrictions"}
    data = plugin.pre_filter(pod, snapshot).data
    views = {name: NodeView.of(snapshot, snapshot.row(name) or 0) for name in ("a", "b")}
    views["a"].remove(holder)
    assert [plugin.filter_node(data, views[name]) for name in ("a", "b")] == [0, 2]
    views["a"].add(holder)
    assert plugin.filter_node(data, views["a"]) == 2


def test_a_claim_of_the_same_name_elsewhere_is_another_one() -> None:
    """The namespace counts, which upstream's dry run forgets."""
    solo = claim(volume="pv", access_modes=("ReadWriteOncePod",))
    holder = pod_with(ClaimSource(claim_name="c"), name="holder", node="n")
    stranger = replace(holder, uid="s", namespace="elsewhere", name="stranger")
    snapshot = snapshot_of(
        [make_node("n").obj()], [solo, PersistentVolume(name="pv")], [holder, stranger]
    )
    plugin, pod = VolumeRestrictions(), pod_with(ClaimSource(claim_name="c"))
    view = NodeView.of(snapshot, 0)
    view.remove(stranger)
    assert plugin.filter_node(plugin.pre_filter(pod, snapshot).data, view) == 2


def test_when_the_holder_goes_the_claim_is_free() -> None:
    """Without anything else that changes."""
    solo = claim(volume="pv", access_modes=("ReadWriteOncePod",))
    holder = pod_with(ClaimSource(claim_name="c"), name="holder", node="n")
    pod = pod_with(ClaimSource(claim_name="c"))
    snapshot = snapshot_of([make_node("n").obj()], [solo, PersistentVolume(name="pv")], [holder])
    framework = Framework(snapshot)
    assert not evaluate(framework, pod).feasible
    snapshot.remove_pod(holder.uid)
    assert evaluate(framework, pod).feasible == ("n",)


@pytest.mark.parametrize(
    ("source", "objects", "plugin", "text"),
    [
        (
            ClaimSource(claim_name="c"),
            [],
            "VolumeRestrictions",
            'persistentvolumeclaim "c" not found',
        ),
        (
            ClaimSource(claim_name="c"),
            [claim(volume="pv", phase=ClaimPhase.LOST)],
            "VolumeBinding",
            'persistentvolumeclaim "c" bound to non-existent persistentvolume "pv"',
        ),
        (
            ClaimSource(claim_name="c"),
            [claim(deletion_ns=1)],
            "VolumeBinding",
            'persistentvolumeclaim "c" is being deleted',
        ),
        (
            ClaimSource(claim_name="c"),
            [claim(storage_class_name="gone")],
            "VolumeBinding",
            "pod has unbound immediate PersistentVolumeClaims",
        ),
        (
            ClaimSource(claim_name="c"),
            [claim(storage_class_name="wait", volume_name="pv"), WAIT],
            "VolumeBinding",
            "pod has unbound immediate PersistentVolumeClaims",
        ),
        (
            ClaimSource(claim_name="c"),
            [claim(volume="pv")],
            "VolumeZone",
            'persistentvolume "pv" not found',
        ),
        (
            EphemeralSource(),
            [],
            "VolumeBinding",
            'waiting for ephemeral volume controller to create the persistentvolumeclaim "pod-v0"',
        ),
        (
            EphemeralSource(),
            [claim("pod-v0", volume="pv")],
            "VolumeBinding",
            "PVC default/pod-v0 was not created for pod default/pod (pod is not owner)",
        ),
    ],
)
def test_a_claim_that_cannot_be_used_refuses_the_pod(
    source: object, objects: list[CatalogObject], plugin: str, text: str
) -> None:
    """In PreFilter, by the first plugin that looks."""
    verdicts = judged(pod_with(source), *objects)
    status = verdicts.refusals["n"]
    assert (status.plugin, status.message) == (plugin, text)
    assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert verdicts.pre_filtered == {"n"}


def test_an_ephemeral_volume_uses_the_claim_that_the_pod_controls() -> None:
    """By its uid."""
    pod = pod_with(EphemeralSource())
    owner = OwnerReference(kind="Pod", name="pod", uid=pod.uid, controller=True)
    made = claim("pod-v0", volume="pv", owners=(owner,))
    assert judged(pod, made, PersistentVolume(name="pv")).feasible == ("n",)


def test_a_bound_volume_is_reached_by_some_nodes() -> None:
    """Its node affinity sees labels, and never a name."""
    nodes = [make_node(name).label("disk", name).obj() for name in "ab"]
    volume = PersistentVolume(name="pv", node_affinity=on("disk", "a"))
    verdicts = judged(
        pod_with(ClaimSource(claim_name="c")), claim(volume="pv"), volume, nodes=nodes
    )
    assert verdicts.feasible == ("a",)
    text = "node(s) didn't match PersistentVolume's node affinity"
    assert verdicts.refusals["b"].reasons == (text,)


def test_without_the_zone_plugin_a_volume_that_has_gone_refuses_node_after_node() -> None:
    """VolumeBinding's own reason."""
    at = {
        ExtensionPoint.PRE_FILTER: PluginSet(disabled=("VolumeZone",)),
        ExtensionPoint.FILTER: PluginSet(),
    }
    at[ExtensionPoint.FILTER] = PluginSet(disabled=("VolumeZone",))
    verdicts = judged(
        pod_with(ClaimSource(claim_name="c")),
        claim(volume="pv"),
        profile=replace(DEFAULT_PROFILE, at=at),
    )
    text = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
    assert verdicts.refusals["n"].reasons == (text,)


def available(name: str, size: int, **fields: object) -> PersistentVolume:
    """Return a free volume of the class "local"."""
    made = PersistentVolume(
        name=name,
        capacity_bytes=size,
        storage_class_name="local",
        phase=VolumePhase.AVAILABLE,
        access_modes=("ReadWriteOnce",),
    )
    return replace(made, **fields)  # type: ignore[arg-type]  # by field name


WAITING = claim(storage_class_name="local", request_bytes=5, access_modes=("ReadWriteOnce",))


@pytest.mark.parametrize(
    ("volume", "fits"),
    [
        (available("v", 5), True),
        (available("v", 4), False),
        (available("v", 5, phase=VolumePhase.RELEASED), False),
        (available("v", 5, storage_class_name="other"), False),
        (available("v", 5, access_modes=("ReadOnlyMany",)), False),
        (available("v", 5, deletion_ns=1), False),
        (available("v", 5, node_affinity=on("disk", "no")), False),
        (available("v", 5, volume_attributes_class_name="gold"), False),
        (available("v", 5, claim_ref=ClaimRef(namespace="default", name="other")), False),
        (
            available(
                "v",
                5,
                claim_ref=ClaimRef(namespace="default", name="c", uid="uid-c"),
                phase=VolumePhase.PENDING,
            ),
            True,
        ),
        (available("v", 5, claim_ref=ClaimRef(namespace="default", name="c", uid="old")), False),
    ],
)
def test_a_waiting_claim_takes_a_volume_that_is_there(volume: PersistentVolume, fits: bool) -> None:
    """Of its class, large enough, free or meant for it, and within reach."""
    refused = refusal(pod_with(ClaimSource(claim_name="c")), WAITING, LOCAL, volume)
    text = "node(s) didn't find available persistent volumes to bind"
    expected = ("VolumeBinding", Code.UNSCHEDULABLE_AND_UNRESOLVABLE, text)
    assert refused == (None if fits else expected)


def test_a_selector_picks_among_the_volumes() -> None:
    """By their labels."""
    picky = replace(
        WAITING, selector=LabelSelector(requirements=(requirement("tier", "In", "gold"),))
    )
    pod = pod_with(ClaimSource(claim_name="c"))
    assert refusal(pod, picky, LOCAL, available("v", 5)) is not None
    assert refusal(pod, picky, LOCAL, available("v", 5, labels={"tier": "gold"})) is None


def test_two_claims_need_two_volumes_and_the_smaller_one_chooses_first() -> None:
    """The smallest volume that fits goes to the smallest claim."""
    pod = pod_with(ClaimSource(claim_name="big"), ClaimSource(claim_name="c"))
    big = claim("big", storage_class_name="local", request_bytes=8)
    assert refusal(pod, WAITING, big, LOCAL, available("v", 9)) is not None
    objects = (WAITING, big, LOCAL, available("v", 9), available("w", 6))
    assert refusal(pod, *objects) is None


def test_a_class_makes_volumes_where_its_topologies_allow() -> None:
    """A term without requirements allows nothing."""
    pod = pod_with(ClaimSource(claim_name="c"))
    waiting = claim(storage_class_name="wait", request_bytes=5)
    nodes = [make_node(name).label("zone", name).obj() for name in "ab"]
    term = (TopologyRequirement(key="zone", values=("b",)),)
    limited = replace(WAIT, allowed_topologies=(term, ()))
    assert judged(pod, waiting, WAIT, nodes=nodes).feasible == ("a", "b")
    assert judged(pod, waiting, limited, nodes=nodes).feasible == ("b",)


def test_a_claim_whose_node_was_chosen_fits_there_alone() -> None:
    """By its annotation, before any volume is looked for."""
    chosen = claim(
        storage_class_name="wait", annotations={"volume.kubernetes.io/selected-node": "b"}
    )
    nodes = [make_node(name).obj() for name in "ab"]
    verdicts = judged(pod_with(ClaimSource(claim_name="c")), chosen, WAIT, nodes=nodes)
    assert verdicts.feasible == ("b",)


@pytest.mark.parametrize(
    ("capacity", "fits"),
    [
        (CsiStorageCapacity(namespace="x", name="k"), False),
        (
            CsiStorageCapacity(
                namespace="x",
                name="k",
                storage_class_name="wait",
                node_topology=LabelSelector(),
                capacity_bytes=5,
            ),
            True,
        ),
        (
            CsiStorageCapacity(
                namespace="x",
                name="k",
                storage_class_name="wait",
                node_topology=LabelSelector(),
                capacity_bytes=9,
                maximum_volume_size_bytes=4,
            ),
            False,
        ),
        (
            CsiStorageCapacity(
                namespace="x", name="k", storage_class_name="wait", capacity_bytes=9
            ),
            False,
        ),
    ],
)
def test_a_driver_that_publishes_its_capacity_must_have_enough(
    capacity: CsiStorageCapacity, fits: bool
) -> None:
    """The largest volume counts before what is left."""
    waiting = claim(storage_class_name="wait", request_bytes=5)
    driver = CsiDriver(name="csi.x", storage_capacity=True)
    refused = refusal(pod_with(ClaimSource(claim_name="c")), waiting, WAIT, driver, capacity)
    text = "node(s) did not have enough free storage"
    expected = ("VolumeBinding", Code.UNSCHEDULABLE_AND_UNRESOLVABLE, text)
    assert refused == (None if fits else expected)


def test_an_assumed_pod_reserves_its_volume_until_it_is_forgotten() -> None:
    """A volume that is there is taken for the claim; the node of one to be made is fixed."""
    other = claim("d", storage_class_name="local", request_bytes=5)
    made = claim("m", storage_class_name="wait", request_bytes=5)
    nodes = [make_node(name).obj() for name in "ab"]
    snapshot = snapshot_of(nodes, [WAITING, other, made, LOCAL, WAIT, available("v", 5)])
    framework, plugin = Framework(snapshot), VolumeBinding()
    first = pod_with(ClaimSource(claim_name="c"), ClaimSource(claim_name="m"), name="first")
    second = pod_with(ClaimSource(claim_name="d"), name="second")
    third = pod_with(ClaimSource(claim_name="m"), name="third")
    assert evaluate(framework, second).feasible == ("a", "b")
    plugin.reserve(first, snapshot.row("a") or 0, snapshot)
    assert not evaluate(framework, second).feasible
    assert evaluate(framework, third).feasible == ("a",)
    plugin.unreserve(first, snapshot.row("a") or 0, snapshot)
    assert evaluate(framework, second).feasible == ("a", "b")
    assert evaluate(framework, third).feasible == ("a", "b")


def csi_node(count: int, driver: str = "csi.x", migrated: str = "") -> CsiNode:
    """Return node n's drivers: one, with a limit."""
    annotations = {"storage.alpha.kubernetes.io/migrated-plugins": migrated} if migrated else {}
    return CsiNode(
        name="n",
        annotations=annotations,
        drivers=(CsiNodeDriver(name=driver, allocatable_count=count),),
    )


def csi(name: str) -> tuple[PersistentVolumeClaim, PersistentVolume]:
    """Return a claim and its volume of csi.x."""
    source = CsiSource(driver="csi.x", volume_handle=f"h-{name}")
    return claim(name, volume=f"pv-{name}"), PersistentVolume(name=f"pv-{name}", source=source)


def test_a_driver_attaches_so_many_volumes_each_counted_once() -> None:
    """Volumes that a pod on the node uses already are not counted again."""
    objects: list[CatalogObject] = [*csi("c"), *csi("d"), csi_node(1)]
    other = pod_with(ClaimSource(claim_name="d"), name="other", node="n")
    full = ("NodeVolumeLimits", Code.UNSCHEDULABLE, "node(s) exceed max volume count")
    assert refusal(pod_with(ClaimSource(claim_name="c")), *objects, pods=[other]) == full
    assert refusal(pod_with(ClaimSource(claim_name="d")), *objects, pods=[other]) is None
    assert refusal(pod_with(ClaimSource(claim_name="c")), *objects[:4], pods=[other]) is None


def test_attachments_count_beside_pods() -> None:
    """Those of volumes that no pod on the node uses."""
    objects: list[CatalogObject] = [*csi("c"), *csi("d"), csi_node(1)]
    attachment = VolumeAttachment(
        name="va", attacher="csi.x", node_name="n", persistent_volume_name="pv-d"
    )
    pod = pod_with(ClaimSource(claim_name="c"))
    assert refusal(pod, *objects, attachment) is not None
    assert refusal(pod, *objects, replace(attachment, node_name="other")) is None


def test_a_claim_that_waits_counts_for_its_class_driver() -> None:
    """Before there is any volume."""
    waiting = claim(storage_class_name="wait", request_bytes=5)
    pod = pod_with(ClaimSource(claim_name="c"))
    assert refusal(pod, waiting, WAIT, csi_node(0)) is not None
    assert refusal(pod, waiting, WAIT, csi_node(1)) is None


@pytest.mark.parametrize(
    ("disk", "driver", "migrated", "counts"),
    [
        (GcePersistentDisk(pd_name="d"), "pd.csi.storage.gke.io", "", True),
        (AwsElasticBlockStore(volume_id="aws://zone/vol-1"), "ebs.csi.aws.com", "", True),
        (AzureDisk(disk_name="d", disk_uri="/d"), "disk.csi.azure.com", "", True),
        (CinderDisk(volume_id="d"), "cinder.csi.openstack.org", "", True),
        (PortworxVolume(volume_id="d"), "pxd.portworx.com", "", False),
        (PortworxVolume(volume_id="d"), "pxd.portworx.com", "kubernetes.io/portworx-volume", True),
    ],
)
def test_an_inline_disk_counts_for_the_driver_it_was_migrated_to(
    disk: object, driver: str, migrated: str, counts: bool
) -> None:
    """As soon as the node has a CSINode; Portworx where that says so."""
    refused = refusal(pod_with(disk), csi_node(0, driver, migrated))
    assert (refused is not None) is counts


def test_an_aws_disk_without_a_volume_id_is_an_error() -> None:
    """It cannot be translated, which ends the cycle."""
    snapshot = snapshot_of([make_node("n").obj()], [csi_node(1, "ebs.csi.aws.com")])
    verdicts = filter_verdicts(
        Framework(snapshot), pod_with(AwsElasticBlockStore(volume_id="aws://zone/x"))
    )
    failure = verdicts.filter_failure(verdicts.refuser)
    assert failure is not None
    assert failure.plugin == "NodeVolumeLimits"


ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
ZONE_BETA = "failure-domain.beta.kubernetes.io/zone"
GCE, EBS = "pd.csi.storage.gke.io", "ebs.csi.aws.com"


def bound_disk(source: object, labels: dict[str, str] | None = None) -> PersistentVolume:
    """Return the volume of the claim c."""
    return PersistentVolume(name="pv", source=source, labels=labels or {})  # type: ignore[arg-type]  # any disk


@pytest.mark.parametrize(
    ("labels", "counts"),
    [
        ({}, True),
        ({ZONE: "za"}, True),
        ({ZONE: "us-a-1__us-a-2"}, True),
        ({ZONE: "us-a-1__us-b-2"}, False),
        ({ZONE: "za__zb"}, False),
        ({ZONE: "us-a-1__"}, False),
        ({ZONE: "us-gov-a-1__us-gov-a-2"}, False),
        ({ZONE_BETA: "za__zb", ZONE: "us-a-1__us-a-2"}, False),
        ({ZONE_BETA: "us-a-1__us-a-2", ZONE: "za__zb"}, True),
        ({ZONE_BETA: "", ZONE: "za__zb"}, False),
    ],
)
def test_a_bound_gce_disk_counts_unless_its_zones_name_no_single_region(
    labels: dict[str, str], counts: bool
) -> None:
    """What the translation refuses counts against no limit; beta labels come first."""
    volume = bound_disk(GcePersistentDisk(pd_name="d"), labels)
    node = make_node("n").obj()
    pod = pod_with(ClaimSource(claim_name="c"))
    verdicts = judged(pod, claim(volume="pv"), volume, csi_node(0, GCE), nodes=[node])
    assert (not verdicts.feasible) is counts
    assert verdicts.error == ""


@pytest.mark.parametrize(
    ("volume_id", "counts"),
    [
        ("vol-1", True),
        ("anything/at:all", True),
        ("", False),
        ("aws://zone/vol-1", True),
        ("aws:///vol-1", True),
        ("aws:///vol-1/", True),
        ("aws://user@zone:80/vol-1?query#part", True),
        ("aws:///%76ol-1", True),
        ("aws://zone/disk-1", False),
        ("aws://zone/vol-1/vol-2", False),
        ("aws://zone", False),
        ("aws://zone:port/vol-1", False),
        ("aws://a zone/vol-1", False),
        ("aws://[zone/vol-1", False),
        ("aws://us er@zone/vol-1", False),
        ("aws:///vol-%zz", False),
        ("aws:///vol-1#%", False),
        ("aws:///vol-\n1", False),
    ],
)
def test_a_bound_aws_disk_counts_unless_its_id_is_an_url_without_a_volume(
    volume_id: str, counts: bool
) -> None:
    """An id that is no URL is taken as it is."""
    volume = bound_disk(AwsElasticBlockStore(volume_id=volume_id))
    pod = pod_with(ClaimSource(claim_name="c"))
    refused = refusal(pod, claim(volume="pv"), volume, csi_node(0, EBS))
    assert (refused is not None) is counts


def test_a_volume_that_cannot_be_translated_where_it_was_migrated_ends_the_cycle() -> None:
    """VolumeBinding needs its topology there; a volume before it that is elsewhere hides that."""
    odd = bound_disk(GcePersistentDisk(pd_name="d"), {ZONE: "za__zb"})
    far = replace(odd, name="far", source=None, node_affinity=on(ZONE, "zc"))
    moved = csi_node(9, GCE, "kubernetes.io/gce-pd")
    objects: list[CatalogObject] = [claim(volume="pv"), claim("f", volume="far"), odd, far, moved]
    pod = pod_with(ClaimSource(claim_name="c"))
    verdicts = judged(pod, *objects)
    assert verdicts.error == (
        'running "VolumeBinding" filter plugin: could not translate pv: failed to get region from '
        "zones: zone in unexpected format, expected: {locale}-{region}-{zone}, got: za"
    )
    both = pod_with(ClaimSource(claim_name="f"), ClaimSource(claim_name="c"))
    reasons = judged(both, *objects).refusals["n"].reasons
    assert reasons == ("node(s) didn't match PersistentVolume's node affinity",)
    assert judged(pod, *objects[:4], csi_node(9, GCE)).feasible == ("n",)


@pytest.mark.parametrize(
    ("volume", "plugin", "wanted"),
    [
        (
            bound_disk(GcePersistentDisk(pd_name="d"), {ZONE: "us-a-1__us-a-2"}),
            "kubernetes.io/gce-pd",
            {"topology.gke.io/zone": "us-a-2"},
        ),
        (
            replace(
                bound_disk(CinderDisk(volume_id="d"), {ZONE_BETA: " z1__"}),
                node_affinity=on(REGION, "r"),
            ),
            "kubernetes.io/cinder",
            {"topology.cinder.csi.openstack.org/zone": "z1", REGION: "r"},
        ),
        (
            replace(bound_disk(VsphereDisk(volume_path="d")), node_affinity=on(ZONE, "z1")),
            "kubernetes.io/vsphere-volume",
            {"topology.csi.vmware.com/zone": "z1"},
        ),
        (
            bound_disk(VsphereDisk(volume_path="d"), {ZONE: "z1__z2", REGION: " r "}),
            "kubernetes.io/vsphere-volume",
            {"topology.csi.vmware.com/zone": "z1__z2", "topology.csi.vmware.com/region": "r"},
        ),
        (
            replace(
                bound_disk(AzureDisk(disk_name="d", disk_uri="/d")), node_affinity=on(ZONE, "z1")
            ),
            "kubernetes.io/azure-disk",
            {ZONE: "z1"},
        ),
    ],
)
def test_a_translated_volume_is_reached_by_exactly_these_labels(
    volume: PersistentVolume, plugin: str, wanted: dict[str, str]
) -> None:
    """Without any one of them the node is another one."""

    def reaches(labels: dict[str, str]) -> bool:
        made = make_node("n")
        for key, value in labels.items():
            made.label(key, value)
        return reaches_volume(affinity_on(volume, csi_node(9, "x", plugin)), made.obj())

    assert reaches(wanted)
    for missing in wanted:
        assert not reaches({key: value for key, value in wanted.items() if key != missing})


@pytest.mark.parametrize(
    ("labels", "node", "fits"),
    [
        ({"topology.kubernetes.io/zone": "z1"}, {}, True),
        ({"topology.kubernetes.io/zone": "z1"}, {"topology.kubernetes.io/region": "r"}, False),
        ({"topology.kubernetes.io/zone": "z1__z2"}, {"topology.kubernetes.io/zone": "z2"}, True),
        (
            {"failure-domain.beta.kubernetes.io/zone": "z1"},
            {"topology.kubernetes.io/zone": "z1"},
            True,
        ),
        (
            {"topology.kubernetes.io/zone": "z1"},
            {"failure-domain.beta.kubernetes.io/zone": "z1"},
            False,
        ),
        ({"topology.kubernetes.io/zone": "z1__"}, {"topology.kubernetes.io/zone": "z9"}, True),
    ],
)
def test_a_zone_of_the_volume_must_be_the_nodes(
    labels: dict[str, str], node: dict[str, str], fits: bool
) -> None:
    """Several zones stand between double underscores; a label that is no list of them is none."""
    made = make_node("n")
    for key, value in node.items():
        made.label(key, value)
    volume = PersistentVolume(name="pv", labels=labels)
    verdicts = judged(
        pod_with(ClaimSource(claim_name="c")), claim(volume="pv"), volume, nodes=[made.obj()]
    )
    assert (verdicts.feasible == ("n",)) is fits


def test_a_migrated_volume_is_looked_for_by_the_drivers_own_label() -> None:
    """Where the node's CSINode says that the plugin was migrated there."""
    volume = PersistentVolume(
        name="pv",
        source=GcePersistentDisk(pd_name="d"),
        node_affinity=on("topology.kubernetes.io/zone", "z1"),
    )
    node = make_node("n").label("topology.kubernetes.io/zone", "z1").obj()
    pod = pod_with(ClaimSource(claim_name="c"))
    plain = csi_node(9, "pd.csi.storage.gke.io")
    moved = csi_node(9, "pd.csi.storage.gke.io", "kubernetes.io/gce-pd")
    assert judged(pod, claim(volume="pv"), volume, plain, nodes=[node]).feasible == ("n",)
    assert not judged(pod, claim(volume="pv"), volume, moved, nodes=[node]).feasible
