"""Unschedulable pods: pods that were refused, and wait for an event or for the leftover flush.

Four indexes make the cost of an operation proportional to the number of pods that it moves. First,
pods are in the order of their timestamps, so that the pods that have waited too long come first;
the few pods that are added with an earlier timestamp than the last pod's (late pods) are kept
separately. Second, pods with the same failure and gating plugin form a group, so that the hints for
an event are looked up once for the group. Third, pods with required affinity terms are indexed,
because an event of an assigned pod concerns only these. Fourth, pods are found by the
ResourceClaims that their specs name, because most events of a claim concern only these and its
owner.

Source: kubernetes v1.20 internal/queue/scheduling_queue.go, UnschedulablePodsMap,
flushUnschedulableQLeftover; v1.34 backend/queue/unschedulable_pods.go.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from itertools import chain, islice

from services.framework.cluster_event import ClaimUsers
from services.queue.core.queued_pod import AssignedPod, Failure, PodKey, QueuedPodInfo

Group = tuple[Failure | None, str]
"""A failure and a gating plugin ("" if none); they determine the hints that an event calls."""


class UnschedulablePods:
    """The unschedulable pods by key, oldest timestamp first; gated pods separately."""

    __slots__ = (
        "_by_claim",
        "_by_uid",
        "_gated",
        "_groups",
        "_late",
        "_newest_ns",
        "_ordered",
        "_with_affinity",
    )

    def __init__(self) -> None:
        self._ordered: OrderedDict[PodKey, QueuedPodInfo] = OrderedDict()
        self._late: dict[PodKey, QueuedPodInfo] = {}
        self._gated: dict[PodKey, QueuedPodInfo] = {}
        self._groups: dict[Group, dict[PodKey, QueuedPodInfo]] = {}
        self._with_affinity: dict[PodKey, QueuedPodInfo] = {}
        self._by_claim: dict[tuple[str, str], dict[PodKey, None]] = {}
        self._by_uid: dict[str, PodKey] = {}
        self._newest_ns = 0

    def __len__(self) -> int:
        return len(self._ordered) + len(self._late) + len(self._gated)

    def __contains__(self, key: PodKey) -> bool:
        return key in self._ordered or key in self._gated or key in self._late

    @property
    def gated(self) -> int:
        """The number of gated pods."""
        return len(self._gated)

    def put(self, pod_info: QueuedPodInfo) -> None:
        """Add a pod that is not here."""
        key = pod_info.key
        assert key not in self
        if pod_info.gating_plugin:
            self._gated[key] = pod_info
        elif pod_info.timestamp_ns >= self._newest_ns:
            self._newest_ns = pod_info.timestamp_ns
            self._ordered[key] = pod_info
        else:
            self._late[key] = pod_info
        self._index(key, pod_info)

    def replace(self, pod_info: QueuedPodInfo) -> None:
        """Replace a pod by a version with the same timestamp."""
        key = pod_info.key
        home = self._home(key)
        assert home is not None
        present = home[key]
        assert present.timestamp_ns == pod_info.timestamp_ns
        if bool(present.gating_plugin) != bool(pod_info.gating_plugin):
            self.remove(key)
            self.put(pod_info)
            return
        self._unindex(key, present)
        home[key] = pod_info
        self._index(key, pod_info)

    def get(self, key: PodKey) -> QueuedPodInfo | None:
        """Return the pod of `key`, None if it is not here."""
        return self._ordered.get(key) or self._gated.get(key) or self._late.get(key)

    def remove(self, key: PodKey) -> QueuedPodInfo | None:
        """Remove and return the pod of `key`, None if it is not here."""
        home = self._home(key)
        if home is None:
            return None
        pod_info = home.pop(key)
        self._unindex(key, pod_info)
        return pod_info

    def take_all(self) -> list[QueuedPodInfo]:
        """Remove and return every pod, in the order of `pod_infos`."""
        taken = list(self.pod_infos())
        for index in (self._ordered, self._late, self._gated, self._groups, self._with_affinity):
            index.clear()
        self._by_claim.clear()
        self._by_uid.clear()
        return taken

    def take_some(self, *, priority_at_most: int | None, all_but_uid: str) -> list[QueuedPodInfo]:
        """Remove and return the pods up to a priority (None: any), except the pod of a UID."""
        taken = [
            pod_info
            for pod_info in self.pod_infos()
            if (priority_at_most is None or pod_info.pod.priority <= priority_at_most)
            and pod_info.pod.uid != all_but_uid
        ]
        for pod_info in taken:
            self.remove(pod_info.key)
        return taken

    def take_older(self, than_ns: int) -> list[QueuedPodInfo]:
        """Remove and return the pods that `older` returns."""
        taken = self.older(than_ns)
        for pod_info in taken:
            self.remove(pod_info.key)
        return taken

    def older(self, than_ns: int) -> list[QueuedPodInfo]:
        """Return the pods with a timestamp before `than_ns`: oldest first, late and gated last."""
        older: list[QueuedPodInfo] = []
        for pod_info in self._ordered.values():
            if pod_info.timestamp_ns >= than_ns:
                break
            older.append(pod_info)
        apart = chain(self._late.values(), self._gated.values())
        return older + [pod_info for pod_info in apart if pod_info.timestamp_ns < than_ns]

    def take_with_term_matching(self, assigned: AssignedPod) -> list[QueuedPodInfo]:
        """Remove and return the pods with a required affinity term that `assigned` matches."""
        taken = self.with_term_matching(assigned)
        for pod_info in taken:
            self.remove(pod_info.key)
        return taken

    def with_term_matching(self, assigned: AssignedPod) -> list[QueuedPodInfo]:
        """Return the pods with a required affinity term that `assigned` matches."""
        return [
            pod_info
            for pod_info in self._with_affinity.values()
            if pod_info.pod.has_term_matching(assigned)
        ]

    def using(
        self, users: Iterable[ClaimUsers], members: Mapping[PodKey, QueuedPodInfo]
    ) -> list[QueuedPodInfo]:
        """Return the pods of a group that own or name a claim, in the group's order."""
        keys = set[PodKey]()
        for namespace, claim_name, owner_uids in users:
            keys.update(self._by_uid[uid] for uid in owner_uids if uid in self._by_uid)
            keys.update(self._by_claim.get((namespace, claim_name), ()))
        if len(keys) == 1:
            (key,) = keys
            return [members[key]] if key in members else []
        return [pod_info for key, pod_info in members.items() if key in keys] if keys else []

    def groups(self) -> list[tuple[Group, dict[PodKey, QueuedPodInfo]]]:
        """Return the groups; each dict is live, and changes as pods are added and removed."""
        return list(self._groups.items())

    def oldest(self) -> QueuedPodInfo | None:
        """Return the ungated pod with the earliest timestamp, None without ungated pods."""
        first = next(iter(self._ordered.values()), None)
        if not self._late:
            return first
        late = min(
            self._late.values(), key=lambda pod_info: (pod_info.timestamp_ns, pod_info.sequence)
        )
        return late if first is None or late.timestamp_ns < first.timestamp_ns else first

    def first(self, count: int) -> list[QueuedPodInfo]:
        """Return the first `count` ungated pods, oldest timestamp first, late pods last."""
        return list(islice(chain(self._ordered.values(), self._late.values()), count))

    def first_gated(self, count: int) -> list[QueuedPodInfo]:
        """Return the first `count` gated pods, in the order of their arrival."""
        return list(islice(self._gated.values(), count))

    def pod_infos(self) -> tuple[QueuedPodInfo, ...]:
        """Return every pod: by timestamp, then late pods, then gated pods by arrival."""
        return (*self._ordered.values(), *self._late.values(), *self._gated.values())

    def _home(self, key: PodKey) -> dict[PodKey, QueuedPodInfo] | None:
        for home in (self._ordered, self._gated, self._late):
            if key in home:
                return home
        return None

    def _index(self, key: PodKey, pod_info: QueuedPodInfo) -> None:
        group = (pod_info.failure, pod_info.gating_plugin)
        members = self._groups.get(group)
        if members is None:
            members = self._groups[group] = {}
        members[key] = pod_info
        self._by_uid[pod_info.pod.uid] = key
        if pod_info.pod.affinity_terms:
            self._with_affinity[key] = pod_info
        for claim in _claims(pod_info):
            self._by_claim.setdefault(claim, {})[key] = None

    def _unindex(self, key: PodKey, pod_info: QueuedPodInfo) -> None:
        group = (pod_info.failure, pod_info.gating_plugin)
        members = self._groups[group]
        del members[key]
        if not members:
            del self._groups[group]
        if self._by_uid.get(pod_info.pod.uid) == key:
            del self._by_uid[pod_info.pod.uid]
        if pod_info.pod.affinity_terms:
            del self._with_affinity[key]
        for claim in _claims(pod_info):
            users = self._by_claim.get(claim)
            if users is not None:
                users.pop(key, None)
                if not users:
                    del self._by_claim[claim]


def _claims(pod_info: QueuedPodInfo) -> list[tuple[str, str]]:
    """Return namespace and name of the ResourceClaims that a pod's spec names."""
    spec = pod_info.pod.spec
    if spec is None or not spec.device_claims:
        return []
    namespace = pod_info.pod.namespace
    return [(namespace, claim.claim_name) for claim in spec.device_claims if claim.claim_name]
