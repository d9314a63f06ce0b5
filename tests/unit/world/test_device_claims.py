"""The ResourceClaim controller, and what the world writes of a scheduler's changes of claims."""

from __future__ import annotations

from typing import Any

import pytest

from replay.kube.kinds import to_object
from replay.world.api.device_claims import ResourceClaim
from replay.world.controllers.device_claims import DeviceClaims
from reprieve.kube.v1beta1 import object_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from reprieve.trace.v1beta1 import trace_pb2
from tests import device_objects as k8s
from tests.unit.world.builders import S, World, bind, controller_of, delete, unschedulable

HEADER = trace_pb2.Record(header=trace_pb2.Header(has_devices=True))


def record(raw: dict[str, Any], **kind: bool) -> trace_pb2.Record:
    """Return the record that creates an object, or with update=True updates it."""
    made = to_object(raw)
    if made.HasField("pod"):
        return trace_pb2.Record(pod_create=trace_pb2.PodCreate(pod=made.pod))
    return trace_pb2.Record(update=made) if kind else trace_pb2.Record(create=made)


def world(*raws: dict[str, Any]) -> World:
    """Return a world with devices and these objects."""
    made = World()
    made.feed(0, HEADER, *map(record, raws))
    return made


def claims(made: World) -> dict[str, ResourceClaim]:
    """Return the claims by name."""
    return {claim.metadata.name: claim for claim in made.cluster.device_claims.by_key.values()}


def allocating(pod: str, node: str, claim: ResourceClaim, device: str) -> scheduler_pb2.Outcome:
    """Return the outcome that binds a pod and allocates a device of the node to its claim."""
    outcome = bind(f"uid-{pod}", node)
    changed = outcome.bind.claims.claims.add()
    changed.CopyFrom(claim)
    changed.metadata.finalizers[:] = [k8s.FINALIZER]
    changed.status.allocation.devices.results.add(
        request="gpu", driver=k8s.DRIVER, pool=node, device=device
    )
    changed.status.reserved_for.add(resource="pods", name=pod, uid=f"uid-{pod}")
    return outcome


def test_a_claim_is_made_for_each_pod_of_a_template() -> None:
    """It has the template's spec, labels and annotations; the pod's status names it."""
    one = k8s.template("one")
    one["spec"]["metadata"] = {"labels": {"team": "a"}, "annotations": {"x": "y"}}
    made = world(one, k8s.pod("p", template="one"))
    (claim,) = claims(made).values()
    meta = claim.metadata
    assert meta.name.startswith("p-gpu-")
    assert len(meta.name) == len("p-gpu-") + 5
    assert dict(meta.labels) == {"team": "a"}
    assert dict(meta.annotations) == {"x": "y", "resource.kubernetes.io/pod-claim-name": "gpu"}
    (owner,) = meta.owner_references
    assert (owner.kind, owner.uid, owner.controller) == ("Pod", "uid-p", True)
    (status,) = made.pod("p").message.status.resource_claim_statuses
    assert (status.name, status.resource_claim_name) == ("gpu", meta.name)
    kinds = [_kind(event) for event in made.cluster.take_events()]
    assert kinds == ["add pod", "add resource_claim", "patch"]


def _kind(event: scheduler_pb2.Event) -> str:
    case = event.WhichOneof("event") or ""
    return f"{case} {getattr(event, case).WhichOneof('object')}" if case == "add" else case


def test_long_names_of_pod_and_claim_are_cut_in_proportion() -> None:
    """To 57 characters, of which an API server keeps all before it adds five."""
    pod = k8s.pod("p" * 60, template="one")
    pod["spec"]["resourceClaims"][0]["name"] = "c" * 20
    (claim,) = claims(world(k8s.template("one"), pod)).values()
    assert claim.metadata.generate_name == "p" * 41 + "-" + "c" * 13


def test_an_existing_generated_claim_is_used() -> None:
    """Its pod's status was not written."""
    made = world(
        k8s.template("one"), k8s.claim("p-gpu-x", **k8s.owned_by("p")), k8s.pod("p", template="one")
    )
    assert list(claims(made)) == ["p-gpu-x"]
    (status,) = made.pod("p").message.status.resource_claim_statuses
    assert status.resource_claim_name == "p-gpu-x"


def test_a_made_claim_that_was_deleted_is_made_again_under_another_name() -> None:
    """While the pod waits."""
    made = world(k8s.template("one"), k8s.pod("p", template="one"))
    (first,) = claims(made)
    made.feed(S, delete("ResourceClaim", first))
    (second,) = claims(made)
    assert first != second
    (status,) = made.pod("p").message.status.resource_claim_statuses
    assert status.resource_claim_name == second


def test_a_binding_writes_the_allocation_and_the_reservation() -> None:
    """Before the pod's own event; what drivers have reported stays."""
    made = world(k8s.node("a"), k8s.claim("c"), k8s.pod("p", claim="c"))
    made.cluster.take_events()
    answers = made.outcomes.apply(S, [allocating("p", "a", claims(made)["c"], "gpu-0")])
    assert not answers[0].refused
    claim = claims(made)["c"]
    assert claim.status.allocation.devices.results[0].device == "gpu-0"
    assert [user.uid for user in claim.status.reserved_for] == ["uid-p"]
    changed, bound = made.cluster.take_events()
    assert changed.update.resource_claim == claim
    assert bound.patch.node_name == "a"


def test_a_binding_with_a_claim_that_has_gone_is_refused() -> None:
    """It is the scheduler's mistake unless the removal was not sent yet."""
    for is_sent in (True, False):
        made = world(k8s.node("a"), k8s.claim("c"), k8s.pod("p", claim="c"))
        outcome = allocating("p", "a", claims(made)["c"], "gpu-0")
        made.feed(S, delete("ResourceClaim", "c"))
        if is_sent:
            made.cluster.take_events()
        (answer,) = made.outcomes.apply(S, [outcome])
        assert answer.message == 'resourceclaims.resource.k8s.io "c" not found'
        (entry,) = (entry for entry in made.entries if entry.observed.HasField("scheduled"))
        assert entry.refusal_cause == ("unknown claim" if is_sent else "")


@pytest.mark.parametrize("end", ["ended", "removed"])
def test_the_last_pod_of_a_claim_gives_its_devices_back(end: str) -> None:
    """A user's claim stays, and has neither devices nor a finalizer then."""
    made = world(
        k8s.node("a"),
        k8s.claim("c", "a/gpu-0", reserved_for=["p", "q"]),
        *(k8s.pod(name, claim="c", on="a") for name in ("p", "q")),
    )
    for name in ("p", "q"):
        pod = made.pod(name)
        if end == "ended":
            pod.message.status.phase = "Succeeded"
            made.cluster.status_changed(S, pod)
        else:
            made.lifecycle.delete(S, pod, 0, "deleted")
        made.settle(S)
        status = claims(made)["c"].status
        assert [user.name for user in status.reserved_for] == ["q"][name == "q" :]
        assert status.HasField("allocation") == (name == "p")
    assert not claims(made)["c"].metadata.finalizers


def test_a_claim_of_other_users_than_pods_is_left_alone() -> None:
    """Nothing is known about these."""
    raw = k8s.claim("c", "a/gpu-0")
    user = {"apiGroup": "x", "resource": "things", "name": "t", "uid": "u"}
    raw["status"]["reservedFor"] = [user]
    made = world(k8s.node("a"), raw)
    assert claims(made)["c"].status.HasField("allocation")


def test_a_generated_claim_is_deleted_with_its_pod() -> None:
    """Its allocation first, so that others can have the devices: two events."""
    made = world(
        k8s.node("a"),
        k8s.claim("p-gpu-x", "a/gpu-0", reserved_for=["p"], **k8s.owned_by("p")),
        k8s.pod("p", template="one", on="a", made="p-gpu-x"),
    )
    made.cluster.take_events()
    made.lifecycle.delete(S, made.pod("p"), 0, "deleted")
    made.settle(S)
    assert not claims(made)
    events = made.cluster.take_events()
    assert [event.WhichOneof("event") for event in events] == ["remove", "update", "remove"]
    assert not events[1].update.resource_claim.status.HasField("allocation")


def test_a_foreign_finalizer_keeps_a_claim_that_is_deleted() -> None:
    """Until an update of the trace takes it off."""
    raw = k8s.claim("c")
    raw["metadata"]["finalizers"] = ["example.com/keep"]
    made = world(raw)
    made.feed(S, delete("ResourceClaim", "c"))
    assert claims(made)["c"].metadata.HasField("deletion_timestamp")
    made.feed(2 * S, record(k8s.claim("c"), update=True))
    assert not claims(made)


def test_an_update_changes_neither_spec_nor_allocation() -> None:
    """Drivers report on devices that are allocated here."""
    update = k8s.claim("c", "b/gpu-7", requests=[k8s.request(count=9)], labels={"x": "y"})
    ready = [{"type": "Ready", "status": "True"}]
    update["status"]["devices"] = [
        {"driver": k8s.DRIVER, "pool": pool, "device": device, "conditions": ready}
        for pool, device in (("a", "gpu-0"), ("b", "gpu-7"))
    ]
    made = world(
        k8s.node("a"),
        k8s.claim("c", "a/gpu-0", reserved_for=["p"]),
        k8s.pod("p", claim="c", on="a"),
    )
    made.feed(S, record(update, update=True))
    claim = claims(made)["c"]
    assert claim.spec.devices.requests[0].exactly.count == 1
    assert dict(claim.metadata.labels) == {"x": "y"}
    assert claim.status.allocation.devices.results[0].pool == "a"
    assert [device.pool for device in claim.status.devices] == ["a"]


def test_what_the_scheduler_gives_back_is_free() -> None:
    """A claim's devices, or the claim that it had made itself."""
    made = world(
        k8s.claim("c", "gone/gpu-0"),
        k8s.claim("mine", "gone/gpu-1", **k8s.owned_by("p")),
        k8s.pod("p", claim="c"),
    )
    outcome = unschedulable("uid-p")
    freed = outcome.unschedulable.freed_claims
    freed.deallocated.add(kind="ResourceClaim", namespace="default", name="c")
    freed.deleted.add(kind="ResourceClaim", namespace="default", name="mine")
    made.outcomes.apply(S, [outcome])
    assert list(claims(made)) == ["c"]
    assert not claims(made)["c"].status.HasField("allocation")


def test_nothing_of_a_pod_that_has_gone_is_kept() -> None:
    """Neither that it waits for a template, nor that it used a claim."""
    made = world(k8s.pod("p", template="late"), k8s.claim("c"), k8s.pod("q", claim="c"))
    controller: Any = controller_of(made.manager, DeviceClaims)
    assert controller._waiting
    assert controller._users
    for name in ("p", "q"):
        made.lifecycle.delete(S, made.pod(name), 0, "deleted")
    made.settle(S)
    assert not controller._waiting
    assert not controller._users


def test_an_invalid_object_is_refused() -> None:
    """With the field; the rest goes on."""
    made = world(k8s.slice_("a", [{"name": "g", "capacity": {"memory": {"value": "much"}}}]))
    (text,) = made.refusals()
    assert "much" in text
    assert not made.cluster.take_events()


def test_a_template_is_an_object_of_no_service() -> None:
    """It is kept with the run's other objects."""
    made = world(k8s.template("one"))
    assert [event.add.WhichOneof("object") for event in made.objects] == ["resource_claim_template"]
    made.feed(S, delete("ResourceClaimTemplate", "one"))
    assert made.objects[-1].remove.name == "one"
    assert isinstance(made.objects[0].add, object_pb2.KubernetesObject)
