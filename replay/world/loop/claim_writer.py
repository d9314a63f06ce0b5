"""Writes the scheduler's changes of claims: allocations, reservations, and what it gives back.

Source: kubernetes v1.36 plugins/dynamicresources/dynamicresources.go, bindClaim, PreBind,
PostFilter; extendeddynamicresources.go, createExtendedResourceClaimInAPI,
patchPodExtendedResourceClaimStatus.
"""

from __future__ import annotations

from replay.hashing import name_suffix, object_uid
from replay.world.api.cluster import Cluster
from replay.world.api.device_claims import ResourceClaim, deallocate, is_reserved, key_of
from replay.world.api.pod_record import PodRecord
from reprieve.scheduler.v1beta1 import scheduler_pb2


class ClaimWriter:
    """The API server's side of a scheduler's changes of claims."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def bound(self, now_ns: int, pod: PodRecord, changes: scheduler_pb2.ClaimChanges) -> None:
        """Write what a binding changes; its claims exist.

        The pod's status names the claim for extended resources; the binding's event shows that.
        """
        for change in changes.claims:
            claim = self._cluster.device_claims.by_key[key_of(change)]
            claim.metadata.finalizers[:] = change.metadata.finalizers
            claim.status.allocation.CopyFrom(change.status.allocation)
            del claim.status.reserved_for[:]
            claim.status.reserved_for.extend(change.status.reserved_for)
            self._cluster.put_claim(now_ns, claim)
        if changes.HasField("created"):
            created = self._created(pod, changes.created)
            self._cluster.put_claim(now_ns, created)
            if changes.HasField("extended_resource_claim_status"):
                status = pod.message.status.extended_resource_claim_status
                status.CopyFrom(changes.extended_resource_claim_status)
                status.resource_claim_name = created.metadata.name

    def _created(self, pod: PodRecord, change: ResourceClaim) -> ResourceClaim:
        """Return a new claim with a name that is free, and a UID."""
        claim = ResourceClaim()
        claim.CopyFrom(change)
        meta = claim.metadata
        number = 0
        while not meta.name or key_of(claim) in self._cluster.device_claims.by_key:
            meta.name = meta.generate_name + name_suffix(pod.uid, number)
            number += 1
        meta.uid = object_uid("ResourceClaim", meta.namespace, meta.name, pod.uid)
        return claim

    def unreserved(self, now_ns: int, pod: PodRecord) -> None:
        """Take the pod's reservations back after its binding failed; the allocations stay.

        Source: kubernetes v1.36 plugins/dynamicresources/dynamicresources.go, Unreserve.
        """
        for claim in self._cluster.device_claims.used_by(pod):
            if is_reserved(claim, pod.uid):
                users = [user for user in claim.status.reserved_for if user.uid != pod.uid]
                del claim.status.reserved_for[:]
                claim.status.reserved_for.extend(users)
                self._cluster.put_claim(now_ns, claim)

    def freed(self, now_ns: int, freed: scheduler_pb2.FreedClaims) -> None:
        """Give back the claims of a pod that fits nowhere; what has gone meanwhile is accepted."""
        for ref in freed.deallocated:
            claim = self._cluster.device_claims.by_key.get(f"{ref.namespace}/{ref.name}")
            if claim is not None:
                deallocate(claim)
                del claim.status.reserved_for[:]
                self._cluster.put_claim(now_ns, claim)
        for ref in freed.deleted:
            self._cluster.remove_claim(now_ns, f"{ref.namespace}/{ref.name}")
