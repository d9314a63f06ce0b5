"""ResourceClaims as the API server stores them, and what pods say of theirs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from replay.world.api.owned_pods import drop
from replay.world.api.pod_record import PodRecord, controller_uid
from reprieve.kube.v1beta1 import device_pb2, pod_pb2
from services.kube.devices import FINALIZER

ResourceClaim: TypeAlias = device_pb2.DeviceClaims.ResourceClaim


class StoredClaims:
    """All claims, by namespace/name, and those that were made for a pod, by its UID.

    `are_simulated`: the trace has the cluster's devices. Without them pods are scheduled and run as
    if they had no claims.
    """

    are_simulated: bool
    by_key: dict[str, ResourceClaim]
    made_for: dict[str, dict[str, None]]

    def __init__(self) -> None:
        self.are_simulated = False
        self.by_key = {}
        self.made_for = {}

    def put(self, claim: ResourceClaim) -> ResourceClaim | None:
        """Add or replace a claim; return the former one, None if it is new."""
        key = key_of(claim)
        former = self.by_key.get(key)
        if former is not None:
            self._forget_owner(key, former)
        self.by_key[key] = claim
        if owner_uid := controller_uid(claim.metadata):
            self.made_for.setdefault(owner_uid, {})[key] = None
        return former

    def pop(self, key: str) -> ResourceClaim | None:
        """Remove a claim and return it; None for an unknown one."""
        claim = self.by_key.pop(key, None)
        if claim is not None:
            self._forget_owner(key, claim)
        return claim

    def _forget_owner(self, key: str, claim: ResourceClaim) -> None:
        if owner_uid := controller_uid(claim.metadata):
            drop(self.made_for, owner_uid, key)

    def may_run(self, pod: PodRecord) -> bool:
        """Return whether the pod's kubelet can prepare all of its claims' devices.

        It does so for claims that are allocated and reserved for the pod.
        Source: kubernetes v1.34 pkg/kubelet/cm/dra/manager.go, prepareResources.
        """
        if not self.are_simulated or not uses_claims(pod.message):
            return True
        return all(
            name is not None and is_reserved(self._of(pod, name), pod.uid)
            for name in claim_names(pod.message)
        )

    def used_by(self, pod: PodRecord) -> Iterator[ResourceClaim]:
        """Yield the claims of a pod that exist."""
        for name in claim_names(pod.message):
            claim = None if name is None else self._of(pod, name)
            if claim is not None:
                yield claim

    def _of(self, pod: PodRecord, name: str) -> ResourceClaim | None:
        return self.by_key.get(f"{pod.message.metadata.namespace}/{name}")


def key_of(claim: ResourceClaim) -> str:
    """Return namespace/name."""
    return f"{claim.metadata.namespace}/{claim.metadata.name}"


def uses_claims(pod: pod_pb2.Pod) -> bool:
    """Return whether a pod has claims, also one that the scheduler made for extended resources."""
    return bool(pod.spec.resource_claims) or pod.status.HasField("extended_resource_claim_status")


def claim_names(pod: pod_pb2.Pod) -> Iterator[str | None]:
    """Yield the name of each claim of a pod, None for one that is still to be made.

    A claim that the status says is not needed has none.
    Source: kubernetes v1.34 dynamic-resource-allocation/resourceclaim/claim.go, Name.
    """
    made = {status.name: status for status in pod.status.resource_claim_statuses}
    for claim in pod.spec.resource_claims:
        if claim.HasField("resource_claim_name"):
            yield claim.resource_claim_name
        elif claim.name not in made:
            yield None
        elif made[claim.name].HasField("resource_claim_name"):
            yield made[claim.name].resource_claim_name
    if pod.status.HasField("extended_resource_claim_status"):
        yield pod.status.extended_resource_claim_status.resource_claim_name


def is_reserved(claim: ResourceClaim | None, uid: str) -> bool:
    """Return whether a claim is allocated and the pod of that UID may use it."""
    return (
        claim is not None
        and claim.status.HasField("allocation")
        and any(consumer.uid == uid for consumer in claim.status.reserved_for)
    )


def deallocate(claim: ResourceClaim) -> None:
    """Give back a claim's devices, with what drivers have reported of them."""
    claim.status.ClearField("allocation")
    del claim.status.devices[:]


def release_finalizer(claim: ResourceClaim) -> None:
    """Let a claim without an allocation be deleted."""
    kept = [name for name in claim.metadata.finalizers if name != FINALIZER]
    claim.metadata.finalizers[:] = kept
