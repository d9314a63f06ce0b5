"""Clusters with devices, as kubectl lists them: which pod gets which, and when it is free again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from replay.backends.processes import EmbeddedServices
from replay.explain.devices import device_refusals
from replay.explain.explain import explain
from replay.explain.target import ExplainQuery
from replay.kube.kinds import to_object
from replay.overrides.inventory import take_inventory
from replay.overrides.nodes import NodePlan, change_nodes, scale_plan
from replay.report.devices import devices
from replay.report.section import open_source
from replay.results.run.directory import RunDirectory
from replay.results.tables.query import RunTables
from replay.runner import FinishedReplay
from replay.whatif.facts import all_figures, read_facts
from replay.world.models import Models
from reprieve.trace.v1beta1 import trace_pb2
from services.kube.devices import IMPLICIT_EXTENDED_RESOURCE_PREFIX
from tests import device_objects as k8s
from tests.e2e.commands import reprieve
from tests.e2e.replays import bindings, run, trace

pytestmark = pytest.mark.e2e
LATER = "2026-01-01T00:00:01Z"


def play(
    services: EmbeddedServices,
    folder: Path,
    *objects: Mapping[str, Any],
    rules: str = "v1.36",
    models: Models | None = None,
) -> FinishedReplay:
    """Replay a list of objects."""
    path = k8s.written(folder / "cluster.json", *objects)
    return run(services, trace([path]), folder / "run", rules=rules, models=models)


def nodes_of(finished: FinishedReplay) -> dict[str, str]:
    """Return the node of each pod that was bound."""
    return {name: bound.node for name, bound in bindings(finished).items()}


def claim_at_end(finished: FinishedReplay, name: str) -> k8s.Claim:
    """Return a claim of the default namespace."""
    return finished.replay.cluster.device_claims.by_key[f"default/{name}"]


def devices_of(claim: k8s.Claim) -> list[str]:
    """Return the allocated devices."""
    return [f"{result.pool}/{result.device}" for result in claim.status.allocation.devices.results]


def bound_at_s(finished: FinishedReplay) -> dict[str, int]:
    """Return after how many seconds each pod was bound."""
    entries = list(finished.run.decisions())
    start_ns = entries[0].time_ns
    return {
        entry.observed.object.name: (entry.time_ns - start_ns) // 10**9
        for entry in entries
        if entry.observed.HasField("scheduled")
    }


@pytest.mark.parametrize("rules", ["v1.34", "v1.36"])
def test_devices_are_given_to_pods_and_free_again_when_these_have_ended(
    here: EmbeddedServices, tmp_path: Path, rules: str
) -> None:
    """Three pods want one of two GPUs each: the third one waits for the first to end."""
    pods = [k8s.pod(name, template="one", service_s=s) for name, s in (("p", 60), ("q", 90))]
    last = k8s.pod("r", template="one", created=LATER, service_s=10)
    finished = play(
        here,
        tmp_path,
        *(k8s.node("a"), k8s.gpus("a", 2), k8s.device_class(), k8s.template("one"), *pods, last),
        rules=rules,
    )
    assert bound_at_s(finished) == {"p": 0, "q": 0, "r": 60}
    states = [dict(k8s.allocated(claims)) for claims in k8s.claims_over_time(finished.run)]
    assert {"a/gpu-0": 1, "a/gpu-1": 1} in states
    assert all(count == 1 for state in states for count in state.values())
    assert not states[-1]
    assert not finished.replay.cluster.device_claims.by_key


def test_a_running_pod_keeps_the_device_of_its_claim(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """Which another claim does not get, whatever node would be preferred."""
    made = k8s.claim("old-gpu-x", "a/gpu-0", reserved_for=["old"], **k8s.owned_by("old"))
    running = k8s.pod("old", template="one", on="a", made="old-gpu-x")
    finished = play(
        here,
        tmp_path,
        *(k8s.node("a"), k8s.gpus("a", 1), k8s.node("b", cpu="2"), k8s.gpus("b", 1)),
        *(k8s.device_class(), k8s.template("one"), made, running, k8s.pod("new", template="one")),
    )
    assert nodes_of(finished) == {"new": "b"}
    assert devices_of(claim_at_end(finished, "old-gpu-x")) == ["a/gpu-0"]
    assert finished.replay.cluster.pods["uid-old"].running_ns is not None


def test_an_allocated_claim_without_a_reservation_leads_its_pod_to_the_device(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """The claim was allocated for a pod that has gone since; its node is not the preferred one."""
    finished = play(
        here,
        tmp_path,
        *(k8s.node("a"), k8s.node("b", cpu="2"), k8s.gpus("a", 1), k8s.gpus("b", 1)),
        *(k8s.device_class(), k8s.claim("held", "b/gpu-0"), k8s.pod("p", claim="held")),
    )
    assert nodes_of(finished) == {"p": "b"}
    held = claim_at_end(finished, "held")
    assert [user.name for user in held.status.reserved_for] == ["p"]


def test_pods_share_a_claim_until_the_last_of_them_has_ended(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """They run on one node; another pod gets the device only then."""
    shared = [k8s.pod(name, claim="ours", service_s=s) for name, s in (("p", 10), ("q", 20))]
    third = k8s.pod("r", claim="ours", on="a", phase="Pending", service_s=30)
    other = k8s.pod("later", template="one", created=LATER, service_s=5)
    finished = play(
        here,
        tmp_path,
        *(k8s.node("a"), k8s.gpus("a", 1), k8s.node("b"), k8s.device_class()),
        *(k8s.template("one"), k8s.claim("ours"), *shared, third, other),
    )
    assert bound_at_s(finished) == {"p": 0, "q": 0, "later": 30}
    assert set(nodes_of(finished).values()) == {"a"}
    most = max(
        len(claims["default/ours"].status.reserved_for)
        for claims in k8s.claims_over_time(finished.run)
    )
    assert most == 3
    ours = claim_at_end(finished, "ours")
    assert not ours.status.HasField("allocation")
    assert not ours.metadata.finalizers


def test_a_bound_pod_waits_for_its_claim_at_its_kubelet(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """A claim that nothing allocates never lets it start, and no scheduler looks at it."""
    waits = k8s.pod("p", template="one", on="a", phase="Pending")
    finished = play(
        here,
        tmp_path,
        *(k8s.node("a"), k8s.gpus("a", 1), k8s.device_class(), k8s.template("one"), waits),
    )
    held = finished.replay.cluster.pods["uid-p"]
    assert held.running_ns is None
    assert held.message.status.HasField("start_time")
    (claim,) = finished.replay.cluster.device_claims.by_key.values()
    assert claim.metadata.generate_name == "p-gpu-"
    assert not claim.status.HasField("allocation")


def test_a_claim_that_is_being_deleted_goes_with_its_last_pod(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """Its pod runs on; no other pod may use it, and one that names it waits."""
    deleted = k8s.claim(
        "old", "a/gpu-0", reserved_for=["p"], deletionTimestamp="2026-01-01T00:00:00Z"
    )
    user = k8s.pod("p", claim="old", on="a", service_s=30)
    finished = play(
        here,
        tmp_path,
        *(k8s.node("a"), k8s.gpus("a", 1), k8s.device_class(), deleted, user),
        k8s.pod("q", claim="old"),
    )
    assert nodes_of(finished) == {}
    assert not finished.replay.cluster.device_claims.by_key
    (note,) = [text for kind, text in finished.replay.journal.notes if kind == "device-claims"]
    assert note == "pods wait for ResourceClaims that do not exist: default/old (default/q)"


def test_a_pod_waits_for_a_missing_template_and_then_goes_on(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """No attempt is made before."""
    path = k8s.written(
        tmp_path / "cluster.json",
        *(k8s.node("a"), k8s.gpus("a", 1), k8s.device_class(), k8s.pod("p", template="late")),
    )
    records = trace([path])
    later = trace([k8s.written(tmp_path / "later.json", k8s.template("late"))])[-1]
    later.time_ns, later.sequence = records[-1].time_ns + 60 * 10**9, records[-1].sequence + 1
    finished = run(here, [*records, later], tmp_path / "run", rules="v1.36")
    (entry,) = [entry for entry in finished.run.decisions() if entry.observed.HasField("scheduled")]
    assert entry.time_ns == later.time_ns
    assert finished.summary.decided.failed_attempts == 0


def test_the_slices_of_a_node_go_with_it(here: EmbeddedServices, tmp_path: Path) -> None:
    """A node of the same name that comes later has none until it brings some."""
    path = k8s.written(
        tmp_path / "cluster.json",
        *(k8s.node("a"), k8s.gpus("a", 1), k8s.device_class(), k8s.template("one")),
    )
    records = trace([path])
    more = trace([k8s.written(tmp_path / "more.json", k8s.node("a"), k8s.pod("p", template="one"))])
    gone = type(records[-1])()
    gone.delete.object.kind, gone.delete.object.name = "Node", "a"
    later = [gone, *(record for record in more if not record.HasField("header"))]
    for second, record in enumerate(later, 1):
        record.time_ns = records[-1].time_ns + second * 10**9
        record.sequence = records[-1].sequence + second
    finished = run(here, [*records, *later], tmp_path / "run", rules="v1.36")
    assert nodes_of(finished) == {}
    removed = [
        event.remove.name
        for round_ in finished.run.rounds()
        for event in round_.events
        if event.remove.kind == "ResourceSlice"
    ]
    assert removed == ["a-slice"]


def test_a_claim_that_no_node_reaches_any_more_is_given_back(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """It was allocated on a node that has gone: the scheduler deallocates it and tries again."""
    finished = play(
        here,
        tmp_path,
        *(k8s.node("b"), k8s.gpus("b", 1), k8s.gpus("gone", 1), k8s.device_class()),
        *(k8s.claim("held", "gone/gpu-0"), k8s.pod("p", claim="held")),
    )
    assert nodes_of(finished) == {"p": "b"}
    assert devices_of(claim_at_end(finished, "held")) == ["b/gpu-0"]


def test_a_class_serves_an_extended_resource_by_a_claim_of_the_schedulers(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """The claim is the pod's, which its status names, and goes with the pod."""
    wants = k8s.pod("p", service_s=60)
    resources = {"cpu": "1", "example.com/gpu": "2"}
    wants["spec"]["containers"][0]["resources"] = {"requests": resources, "limits": resources}
    served = k8s.device_class(extendedResourceName="example.com/gpu")
    finished = play(here, tmp_path, *(k8s.node("a"), k8s.gpus("a", 3), served, wants))
    states = [dict(k8s.allocated(claims)) for claims in k8s.claims_over_time(finished.run)]
    assert states[0] == {"a/gpu-0": 1, "a/gpu-1": 1}
    assert states[-1] == {}
    status = finished.replay.cluster.pods["uid-p"].message.status.extended_resource_claim_status
    assert status.resource_claim_name.startswith("p-extended-resources-")
    assert [mapping.resource_name for mapping in status.request_mappings] == ["example.com/gpu"]


def test_without_devices_in_the_trace_claims_always_fit(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """A list of nodes and pods alone says nothing of them, and a note says so."""
    finished = play(here, tmp_path, k8s.node("a"), k8s.pod("p", template="one"))
    assert nodes_of(finished) == {"p": "a"}
    (note,) = [text for kind, text in finished.replay.journal.notes if kind == "not-simulated"]
    assert note.startswith("device claims (resourceClaims) are not simulated")


def test_nodes_that_an_override_adds_bring_their_devices(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """And those that it removes take theirs with them; each clone has a pool of its own."""
    pods = [k8s.pod(name, template="one") for name in ("p", "q", "r")]
    path = k8s.written(
        tmp_path / "cluster.json",
        *(k8s.node("a"), k8s.gpus("a", 1), k8s.node("b"), k8s.device_class()),
        *(k8s.template("one"), *pods),
    )
    records = trace([path])
    inventory = take_inventory(records)
    plan = scale_plan("kubernetes.io/hostname=a:+2", ["a", "b"], inventory)
    finished = run(here, change_nodes(records, plan), tmp_path / "more", rules="v1.36")
    assert sorted(nodes_of(finished).values()) == sorted(["a", *plan.clones["a"]])
    pools = {
        result.pool
        for claim in finished.replay.cluster.device_claims.by_key.values()
        for result in claim.status.allocation.devices.results
    }
    assert len(pools) == 3
    none = change_nodes(records, NodePlan(removed={"a": None}))
    finished = run(here, none, tmp_path / "less", rules="v1.36")
    assert nodes_of(finished) == {}
    slices = [
        event
        for round_ in finished.run.rounds()
        for event in round_.events
        if event.add.HasField("resource_slice")
    ]
    assert slices == []


def test_an_explanation_names_why_each_device_was_not_taken(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """In use, by which claim; not selected, by whom; tainted; parts in use; or free."""
    part = {"counterSet": "card", "counters": {"memory": {"value": "30Gi"}}}
    model = {"attributes": {"model": {"string": "A100"}}}
    devices: list[dict[str, Any]] = [
        {"name": "used", **model, "consumesCounters": [part]},
        {"name": "other", "attributes": {"model": {"string": "T4"}}},
        {"name": "broken", **model, "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
        {"name": "part", **model, "consumesCounters": [part]},
    ]
    pool = {"name": "a", "generation": 1, "resourceSliceCount": 2}
    counters = k8s.slice_("a", [], pool=pool)
    counters["metadata"] |= {"name": "a-counters", "uid": "uid-a-counters"}
    del counters["spec"]["devices"]
    counters["spec"]["sharedCounters"] = [
        {"name": "card", "counters": {"memory": {"value": "40Gi"}}}
    ]
    expression = f'device.attributes["{k8s.DRIVER}"].model == "A100"'
    wanted = k8s.template("one", k8s.request(selectors=[{"cel": {"expression": expression}}]))
    held = k8s.claim("held", "a/used", reserved_for=["old"])
    finished = play(
        here,
        tmp_path,
        *(k8s.node("a"), k8s.slice_("a", devices, pool=pool), counters, k8s.device_class()),
        *(wanted, held, k8s.pod("old", claim="held", on="a"), k8s.pod("p", template="one")),
    )
    assert nodes_of(finished) == {}
    uid, at_ns = "uid-p", finished.replay.now_ns
    (found,) = device_refusals(finished.run, uid, at_ns, ["a"], "v1.36", 5)
    assert (found.request, found.device_class, found.wanted, found.reached) == ("gpu", "gpu", 1, 4)
    why = {reason.devices[0]: (reason.why, reason.holders) for reason in found.reasons}
    assert why == {
        "used": ("in use", ("default/held",)),
        "other": (f"not selected by the request: {expression}", ()),
        "broken": ("has the taint k=v:NoSchedule", ()),
        "part": ("its parts are in use: counter card/memory", ()),
    }


def test_tables_report_and_figures_have_the_devices_of_each_class(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """Of two GPUs one is in use for 60 s, the other for 30 and then 15 s: 87.5 % of the time."""
    pods = [k8s.pod(name, template="one", service_s=s) for name, s in (("p", 60), ("q", 30))]
    last = k8s.pod("r", template="one", service_s=15)
    finished = play(
        here,
        tmp_path,
        *(k8s.node("a"), k8s.gpus("a", 2), k8s.device_class(), k8s.template("one"), *pods, last),
    )
    with RunTables(finished.run) as tables:
        sql = "SELECT (at_ns - start_ns) // 1e9, in_use, wanted FROM device_usage, run"
        rows = [tuple(map(int, row)) for row in tables.select(f"{sql} ORDER BY at_ns").rows()]
        section = devices(open_source(tables))
    assert rows[0] == (0, 2, 1)
    assert (30, 2, 0) in rows
    assert (45, 1, 0) in rows
    assert rows[-1] == (60, 0, 0)
    assert section.rows == [["gpu", 2, 2, 87.5, 0.0, 1]]
    assert list(section.charts) == ["gpu"]
    figures = all_figures(read_facts(finished.run))
    assert figures[f"allocated_mean{{resource={IMPLICIT_EXTENDED_RESOURCE_PREFIX}gpu}}"] == 87.5


def attached(name: str) -> dict[str, Any]:
    """Return a device that must be attached before a pod is bound to its node."""
    return {"name": name, "bindsToNode": True, "bindingConditions": ["attached"]}


@pytest.mark.parametrize(("delay_s", "bound"), [(0, (0, 20)), (40, (40, 100)), (12, (15, 50))])
def test_a_binding_waits_until_its_device_is_ready(
    here: EmbeddedServices, tmp_path: Path, delay_s: int, bound: tuple[int, int]
) -> None:
    """The first pod runs for 20 s once it is bound; the second one waits for its device first.

    The device is allocated meanwhile, and its driver reports the condition before the binding,
    which looks every five seconds.
    """
    first = k8s.pod("p", template="one", service_s=20)
    second = k8s.pod("r", template="one", created=LATER, service_s=5)
    finished = play(
        here,
        tmp_path,
        *(k8s.node("a"), k8s.slice_("a", [attached("gpu-0")])),
        *(k8s.device_class(), k8s.template("one"), first, second),
        models=Models(device_ready_delay_ns=delay_s * 10**9),
    )
    assert bound_at_s(finished) == dict(zip("pr", bound, strict=True))
    assert {
        count
        for claims in k8s.claims_over_time(finished.run)
        for count in k8s.allocated(claims).values()
    } == {1}
    conditions = [
        condition.type
        for claims in k8s.claims_over_time(finished.run)
        for claim in claims.values()
        for device in claim.status.devices
        for condition in device.conditions
    ]
    assert bool(conditions) == bool(delay_s)


def test_a_binding_fails_whose_device_is_not_ready_in_ten_minutes(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """The pod is nominated meanwhile, then its device is given back, and it is tried again.

    Its second wait would end as the first one, and the run does not go on for it.
    """
    finished = play(
        here,
        tmp_path,
        *(k8s.node("a"), k8s.slice_("a", [attached("gpu-0")])),
        *(k8s.device_class(), k8s.template("one"), k8s.pod("p", template="one")),
        models=Models(device_ready_delay_ns=900 * 10**9),
    )
    start_ns = next(iter(finished.run.rounds())).time_ns
    observed = [
        ((entry.time_ns - start_ns) // 10**9, entry.observed.WhichOneof("observed"), entry.refused)
        for entry in finished.run.decisions()
        if entry.observed.object.name == "p"
    ]
    assert observed == [
        (0, "nominated", ""),
        (600, "scheduled", "device binding timeout"),
        (600, "nominated", ""),
        (602, "failed_scheduling", ""),
        (602, "nominated", ""),
    ]
    users = [
        len(claim.status.reserved_for)
        for claims in k8s.claims_over_time(finished.run)
        for claim in claims.values()
    ]
    assert users == [0, 1, 0, 0, 1]
    status = next(iter(finished.replay.cluster.pods.values())).message.status
    assert [(held.type, held.reason) for held in status.conditions] == [
        ("PodScheduled", "Unschedulable")
    ]
    assert status.nominated_node_name == "a"
    assert status.conditions[0].message.startswith("0/1 nodes are available: 1 resourceclaim not ")
    first, second = (
        explain(finished.run, ExplainQuery(pod="p", attempt=number)) for number in (1, 2)
    )
    assert (first.decision, first.node, first.at_ns - start_ns) == ("scheduled", "a", 600 * 10**9)
    assert second.decision == "unschedulable"
    assert [n for (kind, _), n in finished.replay.journal.notes.items() if kind == "devices-late"]


def test_pods_that_share_a_claim_wait_for_its_devices_together(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """The second one is bound with the first; one that comes 50 s later finds the device ready."""
    pods = [k8s.pod(name, claim="ours", service_s=60) for name in ("p", "q")]
    cluster = [k8s.node("a"), k8s.slice_("a", [attached("gpu-0")]), k8s.device_class()]
    path = k8s.written(tmp_path / "cluster.json", *cluster, k8s.claim("ours"), *pods)
    records = trace([path])
    late = trace_pb2.Record(time_ns=records[-1].time_ns + 50 * 10**9, sequence=99)
    late.create.CopyFrom(to_object(k8s.pod("r", claim="ours", service_s=5)))
    models = Models(device_ready_delay_ns=40 * 10**9)
    finished = run(here, [*records, late], tmp_path / "run", rules="v1.36", models=models)
    start_ns = next(iter(finished.run.rounds())).time_ns
    bound = {
        entry.observed.object.name: (entry.time_ns - start_ns) // 10**9
        for entry in finished.run.decisions()
        if entry.observed.HasField("scheduled")
    }
    assert bound == {"p": 40, "q": 40, "r": 50}


def test_a_pod_that_is_gone_when_its_device_is_ready_is_not_bound(
    here: EmbeddedServices, tmp_path: Path
) -> None:
    """Its claim goes with it, and another pod gets the device."""
    cluster = [k8s.node("a"), k8s.slice_("a", [attached("gpu-0")]), k8s.device_class()]
    pods = [k8s.pod("p", template="one"), k8s.pod("r", template="one", created=LATER)]
    path = k8s.written(tmp_path / "cluster.json", *cluster, k8s.template("one"), *pods)
    records = trace([path])
    gone = trace_pb2.Record(time_ns=records[-1].time_ns + 10 * 10**9, sequence=99)
    gone.delete.object.kind, gone.delete.object.uid = "Pod", "uid-p"
    gone.delete.object.namespace, gone.delete.object.name = "default", "p"
    models = Models(device_ready_delay_ns=40 * 10**9)
    finished = run(here, [*records, gone], tmp_path / "run", rules="v1.36", models=models)
    bound = {
        entry.observed.object.name
        for entry in finished.run.decisions()
        if entry.observed.HasField("scheduled") and not entry.refused
    }
    assert bound == {"r"}


APPLIED = """
kind: ResourceSlice
apiVersion: resource.k8s.io/v1
metadata: {name: a-gpus}
spec:
  driver: gpu.example.com
  nodeName: a
  pool: {name: a, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}]
---
{kind: DeviceClass, apiVersion: resource.k8s.io/v1, metadata: {name: gpu}, spec: {}}
---
{kind: ResourceClaimTemplate, apiVersion: resource.k8s.io/v1, metadata: {name: one},
 spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}}}
"""
CLAIMING = """
{kind: Pod, apiVersion: v1, metadata: {name: NAME},
 spec: {resourceClaims: [{name: gpu, resourceClaimTemplateName: one}],
  containers: [{name: c, image: i, resources: {claims: [{name: gpu}]}}]}}
---
"""
WITHOUT_DEVICES = """
kind: Node
apiVersion: v1
metadata: {name: a}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "110"}}
---
"""


def test_applied_devices_are_those_of_the_cluster_from_then_on(tmp_path: Path) -> None:
    """Two pods wait for a template; it comes with one device, and asks for one, as by default.

    The cluster had no devices, and pods of such clusters are scheduled as if they had no claims.
    """
    pods = "".join(CLAIMING.replace("NAME", name) for name in ("p", "q"))
    (tmp_path / "cluster.yaml").write_text(WITHOUT_DEVICES + pods, encoding="utf-8")
    (tmp_path / "gpus.yaml").write_text(APPLIED, encoding="utf-8")
    options = ["--run", "run", "-q", "--no-report"]
    reprieve(tmp_path, "replay", "cluster.yaml", "--apply", "gpus.yaml,at=1m", *options)
    finished = RunDirectory.open(tmp_path / "run")
    bound = [
        (entry.observed.object.name, entry.time_ns // 10**9)
        for entry in finished.decisions()
        if entry.observed.HasField("scheduled")
    ]
    assert bound == [("p", 60)]
    assert not [note for note in finished.notes() if note.kind == "not-simulated"]
