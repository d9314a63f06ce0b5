"""ResourceQuotas: which pods they count, what they refuse, and when there is room again."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from replay.state_codec import dump_parts, restore_parts
from replay.world.ahead.admitted import AdmittedAhead
from replay.world.api.admission.quotas import RESYNC_NS, Quotas
from replay.world.api.admission.refusal import AdmissionError
from reprieve.kube.v1beta1.admission_pb2 import ResourceQuota
from reprieve.kube.v1beta1.pod_pb2 import Pod
from reprieve.trace.v1beta1 import trace_pb2
from services.rpc.kube import json_codec
from services.rpc.kube.fields import set_time
from tests.unit.world.builders import (
    S,
    World,
    create,
    create_pod,
    delete,
    make_node,
    make_replica_set,
    update,
)


def make_quota(hard: dict[str, str], **spec: object) -> ResourceQuota:
    """Return a quota "q" of namespace default."""
    meta = {"name": "q", "namespace": "default"}
    made: ResourceQuota = json_codec.parse(
        ResourceQuota, {"metadata": meta, "spec": {"hard": hard, **spec}}
    )
    return made


def make_pod(name: str = "p", cpu: str = "1", **spec: object) -> Pod:
    """Return a pod whose container requests CPU, and limits it to twice as much ("0": nothing)."""
    resources = {"requests": {"cpu": cpu}, "limits": {"cpu": f"{2 * int(cpu)}"}}
    container = {"name": "c", "resources": resources if cpu != "0" else {}}
    pod: Pod = json_codec.parse(
        Pod,
        {
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
            "spec": {"containers": [container], **spec},
        },
    )
    return pod


def refusal(quotas: Quotas, pod: Pod, now_ns: int = 0) -> str:
    """Return why the pod is refused; an admitted one ("") is charged."""
    try:
        quotas.check(now_ns, pod)
    except AdmissionError as error:
        return str(error)
    quotas.charge(now_ns, pod)
    return ""


def test_the_refusal_names_what_is_requested_used_and_limited() -> None:
    """2 of 3 CPUs are used; the limit of 4 CPUs is exceeded too, and pods are not."""
    quotas = Quotas()
    hard = {"requests.cpu": "3", "limits.cpu": "4", "pods": "5"}
    assert quotas.put(0, make_quota(hard), [make_pod("old", "2")]) == []
    assert refusal(quotas, make_pod("new", "2")) == (
        "exceeded quota: q, requested: limits.cpu=4,requests.cpu=2, "
        "used: limits.cpu=4,requests.cpu=2, limited: limits.cpu=4,requests.cpu=3"
    )


def test_an_exact_fit_is_admitted_and_one_more_is_not() -> None:
    """Counts, too."""
    quotas = Quotas()
    quotas.put(0, make_quota({"pods": "2"}), [])
    assert [refusal(quotas, make_pod(name)) for name in "abc"] == [
        "",
        "",
        "exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2",
    ]


def test_a_container_must_set_each_limited_resource() -> None:
    """CPU and memory only; not where the pod as a whole does."""
    quotas = Quotas()
    quotas.put(0, make_quota({"requests.memory": "1Gi", "limits.cpu": "1", "pods": "9"}), [])
    assert refusal(quotas, make_pod(cpu="0")) == (
        "failed quota: q: must specify limits.cpu for: c; requests.memory for: c"
    )
    whole = make_pod("whole", "0", resources={"requests": {"memory": "1Gi"}})
    assert refusal(quotas, whole) == ""


@pytest.mark.parametrize(
    ("spec", "counts"),
    [
        ({"scopes": ["Terminating"]}, "deadline"),
        ({"scopes": ["NotTerminating"]}, "plain high best"),
        ({"scopes": ["BestEffort"]}, "best"),
        ({"scopes": ["NotBestEffort"]}, "plain deadline high"),
        ({"scopes": ["NotBestEffort", "NotTerminating"]}, "plain high"),
        ({"scopes": ["PriorityClass"]}, "high"),
        (("PriorityClass", "In", ["high"]), "high"),
        (("PriorityClass", "In", ["low"]), ""),
        (("PriorityClass", "NotIn", ["high"]), "plain deadline best"),
        (("PriorityClass", "DoesNotExist", []), "plain deadline best"),
    ],
)
def test_scopes_choose_the_pods_that_count(spec: object, counts: str) -> None:
    """All of them must match."""
    if isinstance(spec, tuple):
        names = dict(zip(("scopeName", "operator", "values"), spec, strict=True))
        spec = {"scopeSelector": {"matchExpressions": [names]}}
    assert isinstance(spec, dict)
    quotas = Quotas()
    quotas.put(0, make_quota({"pods": "0"}, **spec), [])
    pods = (
        make_pod("plain"),
        make_pod("deadline", activeDeadlineSeconds=60),
        make_pod("high", priorityClassName="high"),
        make_pod("best", "0"),
    )
    refused = [pod.metadata.name for pod in pods if refusal(quotas, pod)]
    assert refused == counts.split()


def test_a_pod_that_has_ended_counts_as_an_object_only() -> None:
    """count/pods keeps it until it is removed."""
    quotas, pod = Quotas(), make_pod()
    quotas.put(0, make_quota({"count/pods": "9", "pods": "9", "cpu": "9"}), [pod])
    pod.status.phase = "Succeeded"
    assert quotas.charge(0, pod)
    used = {name: str(amount) for name, amount in quotas.used("default", "q").items()}
    assert used == {"count/pods": "1", "pods": "0", "cpu": "0"}
    assert quotas.release(pod)
    assert str(quotas.used("default", "q")["count/pods"]) == "0"


def test_a_pod_that_is_stuck_counts_until_the_resync_after_twice_its_grace_period() -> None:
    """Deleted at 10 s with 30 s: it counts until 70 s, and the resync at 300 s finds that."""
    quotas, stuck = Quotas(), make_pod("stuck")
    quotas.put(0, make_quota({"pods": "1"}), [stuck])
    set_time(stuck.metadata.deletion_timestamp, 40 * S)
    stuck.metadata.deletion_grace_period_seconds = 30
    quotas.charge(10 * S, stuck)
    with pytest.raises(AdmissionError) as refused:
        quotas.check(299 * S, make_pod("new"))
    assert refused.value.retry_ns == RESYNC_NS == 300 * S
    assert refusal(quotas, make_pod("new"), 300 * S) == ""


def test_limits_on_other_objects_are_named() -> None:
    """A quota without limits on pods counts none."""
    quotas = Quotas()
    assert quotas.put(0, make_quota({"services": "1", "requests.storage": "1Gi"}), []) == [
        "requests.storage",
        "services",
    ]
    assert refusal(quotas, make_pod(cpu="0")) == ""


# In a world


def make_world(hard: dict[str, str], replicas: int) -> World:
    """Return a world with a quota, a node and a ReplicaSet whose pods request 1 CPU each."""
    world = World()
    replica_set = make_replica_set(replicas=replicas)
    replica_set.spec.template.spec.containers[0].resources.requests["cpu"] = "1"
    world.feed(0, create(make_node()), create(make_quota(hard)), create(replica_set))
    return world


def refused(world: World) -> list[trace_pb2.Decision]:
    """Return the refusals of the decision log."""
    return [entry for entry in world.entries if entry.observed.HasField("refused")]


def test_a_controller_creates_what_its_quota_allows() -> None:
    """2 of 5; the refusal is one entry for the three others, and one note."""
    world = make_world({"requests.cpu": "2"}, 5)
    assert len(world.names()) == 2
    (entry,) = refused(world)
    assert entry.observed.refused.pods == 3
    assert entry.observed.refused.message == (
        f'pods "{entry.observed.object.name}" is forbidden: exceeded quota: q, '
        "requested: requests.cpu=1, used: requests.cpu=2, limited: requests.cpu=2"
    )
    assert world.refusals() == [
        f"ReplicaSet default/web could not create 3 pods: {entry.observed.refused.message}"
    ]


def test_quotas_and_refused_pods_survive_a_checkpoint() -> None:
    """The restored world admits the rest when the quota is raised."""
    world = make_world({"requests.cpu": "2"}, 5)
    other = World()
    restore_parts(SimpleNamespace(**vars(other)), dump_parts(SimpleNamespace(**vars(world))))
    assert other.admission.quotas.used("default", "q") == world.admission.quotas.used(
        "default", "q"
    )
    other.workloads._pod_control.retry_refused(S)
    assert other.timeline.next_ns() == 1_275_000_000


def test_a_raised_quota_admits_the_rest_at_the_next_retry() -> None:
    """Raised at 1 s, retried at 1.275 s: 5 ms * (2**8 - 1)."""
    world = make_world({"requests.cpu": "2"}, 5)
    world.feed(S, update(make_quota({"requests.cpu": "4"})))
    assert (len(world.names()), world.timeline.next_ns()) == (2, 1_275_000_000)
    world.run_until(1_275_000_000)
    assert (len(world.names()), len(refused(world))) == (4, 1)


def test_the_end_of_another_pod_makes_room() -> None:
    """A bare pod holds 1 of 2 CPUs until it is deleted."""
    world = World()
    world.feed(0, create(make_quota({"requests.cpu": "2"})), create_pod(make_pod("bare")))
    replica_set = make_replica_set(replicas=2)
    replica_set.spec.template.spec.containers[0].resources.requests["cpu"] = "1"
    world.feed(0, create(replica_set))
    assert len(world.names()) == 2
    world.feed(S, delete("Pod", "bare"))
    world.run_until(2 * S)
    assert len(world.names()) == 2
    assert "bare" not in world.names()


def test_a_bare_pod_is_refused_and_one_of_a_list_is_not() -> None:
    """A pod with a creationTimestamp exists; it is charged."""
    world = World()
    existing, new = make_pod("existing"), make_pod("new")
    set_time(existing.metadata.creation_timestamp, 0)
    world.feed(0, create(make_quota({"pods": "0"})), create_pod(existing), create_pod(new))
    assert world.names() == ["existing"]
    (entry,) = refused(world)
    assert (entry.observed.object.name, entry.observed.refused.HasField("owner")) == ("new", False)


def test_a_recorded_pod_of_a_controller_is_not_refused_again() -> None:
    """The cluster admitted it; the next one is refused."""
    world = World()
    recorded = trace_pb2.Record()
    recorded.controller_pod.owner.kind, recorded.controller_pod.owner.name = "ReplicaSet", "web"
    recorded.controller_pod.owner.namespace, recorded.controller_pod.name = "default", "web-first"
    world.feed(0, recorded, create(make_quota({"pods": "0"})), create(make_replica_set(replicas=2)))
    assert world.names() == ["web-first"]
    assert [entry.observed.refused.pods for entry in refused(world)] == [1]


def test_a_limit_on_other_objects_is_noted() -> None:
    """With what happens instead."""
    world = make_world({"pods": "9", "services": "1"}, 1)
    assert [text for kind, text in world.journal.notes if kind == "not-simulated"] == [
        "ResourceQuota default/q limits services, too: only pods are counted and checked"
    ]


def test_no_pod_is_admitted_ahead_of_its_time_where_there_is_a_quota() -> None:
    """What the namespace uses at that time is not known before."""
    world = World()
    ahead = AdmittedAhead(world.inputs, world.lifecycle, world.admission)
    assert ahead.admit(S, create_pod(make_pod())) is not None
    world.feed(0, create(make_quota({"pods": "9"})))
    assert ahead.admit(S, create_pod(make_pod("later"))) is None
