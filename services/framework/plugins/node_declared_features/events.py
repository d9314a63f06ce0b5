"""NodeDeclaredFeatures: a node declares other features, or the pod requires others.

Source: kubernetes v1.36 plugins/nodedeclaredfeatures/nodedeclaredfeatures.go, EventsToRegister,
isSchedulableAfterNodeChange, isSchedulableAfterPodUpdate.
"""

from __future__ import annotations

from services.framework.cluster_event import AnyPod, PendingPod
from services.framework.hints import events_of, on, spec_of
from services.framework.plugins.node_declared_features.features import required_features
from services.kube.node import Node


def declares_others(_pod: PendingPod, old: Node | None, new: Node | None) -> bool:
    """Return Queue (true) if the node is new, or declares other features than before."""
    return new is None or old is None or old.declared_features != new.declared_features


def requires_others(pod: PendingPod, old: AnyPod | None, new: AnyPod | None) -> bool:
    """Return Queue (true) if the update of the pod itself changes what it requires."""
    if old is None or new is None:
        return True
    if new.uid != pod.uid:
        return False
    return required_features(spec_of(old)) != required_features(spec_of(new))


EVENTS_V1_36 = events_of(
    "NodeDeclaredFeatures",
    on("NodeAdd", declares_others),
    on("NodeDeclaredFeatureChange", declares_others),
    on("PodUpdate", requires_others),
)
