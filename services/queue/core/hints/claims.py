"""Which claims a pod uses.

Source: kubernetes v1.34 component-helpers/storage/ephemeral/ephemeral.go, VolumeClaimName.
"""

from __future__ import annotations

from services.kube.storage import PersistentVolumeClaim
from services.kube.volumes import ClaimSource, EphemeralSource
from services.queue.core.hints.objects import AnyPod, spec_of


def named_claims(pod: AnyPod) -> frozenset[str]:
    """Return the names of the claims that the pod's volumes name."""
    sources = (volume.source for volume in spec_of(pod).volumes)
    return frozenset(each.claim_name for each in sources if isinstance(each, ClaimSource))


def all_claims(pod: AnyPod) -> frozenset[str]:
    """Return those, and the names of the claims that are made for its ephemeral volumes."""
    made = frozenset(
        f"{pod.name}-{volume.name}"
        for volume in spec_of(pod).volumes
        if isinstance(volume.source, EphemeralSource)
    )
    return named_claims(pod) | made


def names(pod: AnyPod, claim: PersistentVolumeClaim | None) -> bool:
    """Tell whether one of the pod's volumes names `claim`."""
    return (
        claim is not None and claim.namespace == pod.namespace and claim.name in named_claims(pod)
    )


def uses(pod: AnyPod, claim: PersistentVolumeClaim | None) -> bool:
    """Tell whether the pod names `claim`, or has it made for an ephemeral volume."""
    return claim is not None and claim.namespace == pod.namespace and claim.name in all_claims(pod)
