"""Events of ResourceClaims reach the pods that they concern, without a look at all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from services.framework.cluster_event import ObjectEvent
from services.framework.plugins.dynamic_resources.events import claim_changed, users_of
from services.kube.devices import Allocation, ResourceClaim
from services.kube.pod import OwnerReference, PodClaim, PodSpec
from services.queue.core.queued_pod import Failure, QueuedPod, QueuedPodInfo
from services.queue.core.unschedulable import UnschedulablePods
from services.scheduler.core.queueing.mirror import PendingPods

NAMESPACES = st.sampled_from(["a", "b"])
NAMES = st.sampled_from(["c-0", "c-1", "c-2"])
UIDS = st.sampled_from([f"uid-{number}" for number in range(5)])
OWNERS = st.builds(
    OwnerReference, kind=st.just("Pod"), name=st.just("any"), uid=UIDS, controller=st.booleans()
)
ALLOCATIONS = st.sampled_from([None, Allocation()])
CLAIMS = st.builds(
    ResourceClaim,
    namespace=NAMESPACES,
    name=NAMES,
    allocation=ALLOCATIONS,
    owners=st.lists(OWNERS, max_size=2).map(tuple),
)
FAILED = Failure(plugins=("DynamicResources",))


def waiting(number: int, namespace: str, names: Sequence[str | None]) -> QueuedPodInfo:
    """Return a pod that DynamicResources refused, with claims of these names (None: made later)."""
    claims = tuple(PodClaim(name=f"r{i}", claim_name=name) for i, name in enumerate(names))
    spec = PodSpec(device_claims=claims)
    pod = QueuedPod(uid=f"uid-{number}", namespace=namespace, name=f"p-{number}", spec=spec)
    return QueuedPodInfo(pod, number, number, 1, number, FAILED, 1, 0)


PODS = st.lists(
    st.tuples(NAMESPACES, st.lists(st.none() | NAMES, max_size=2)), min_size=1, max_size=5
)


@given(PODS, CLAIMS, ALLOCATIONS, st.booleans(), st.sets(st.integers(0, 4)))
def test_a_hint_skips_every_pod_that_an_event_of_a_claim_does_not_reach(
    pods: list[tuple[str, list[str | None]]],
    claim: ResourceClaim,
    allocation: Allocation | None,
    is_new: bool,
    gone: set[int],
) -> None:
    """Those that it reaches are in the order of their group."""
    unschedulable = UnschedulablePods()
    infos = [waiting(number, *pod) for number, pod in enumerate(pods)]
    for info in infos:
        unschedulable.put(info)
    for number in gone:
        if number < len(infos):
            unschedulable.remove(infos[number].key)
    old = None if is_new else replace(claim, allocation=allocation)
    event = ObjectEvent.of("ResourceClaimAdd" if is_new else "ResourceClaimUpdate", old, claim)
    users = users_of(event)
    for _, members in unschedulable.groups():
        all_members = list(members.values())
        reached = all_members if users is None else unschedulable.using([users], members)
        hinted = [info for info in all_members if claim_changed(info.pod, old, claim)]
        assert [info for info in reached if info in hinted] == hinted
        assert reached == [info for info in all_members if info in reached]
        if users is not None:
            assert len(reached) <= sum(
                info.pod.uid in users.owner_uids or users.claim_name in _names(info)
                for info in all_members
            )


def _names(info: QueuedPodInfo) -> set[str | None]:
    assert info.pod.spec is not None
    return {claim.claim_name for claim in info.pod.spec.device_claims}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "drop"]), UIDS, NAMESPACES, st.none() | st.lists(NAMES, max_size=2)
    ),
    max_size=20,
)


@given(STEPS, NAMESPACES, NAMES)
def test_pods_whose_gates_read_an_object_are_found_in_their_order(
    steps: list[tuple[str, str, str, list[str] | None]], namespace: str, name: str
) -> None:
    """As by a look at all of them."""
    pending = PendingPods()
    plain: dict[str, tuple[str, list[str] | None]] = {}
    for what, uid, pod_namespace, names in steps:
        if what == "drop":
            pending.drop(uid)
            plain.pop(uid, None)
        else:
            pending.put(uid, waits_for_pods=False)
            pending.put_gate(uid, pod_namespace, names)
            plain[uid] = (pod_namespace, names)
    assert list(pending.gated_by(namespace, name)) == [
        uid
        for uid, (of_pod, names) in plain.items()
        if of_pod == namespace and (names is None or name in names)
    ]
