"""Infers which of the features that kubelets declare a pod requires.

Of v1.36's features two are inferred from a pod that is scheduled; the others concern changes of
running pods only. No feature has a last version yet, from which on every node is taken to have it.

Source: kubernetes v1.36 staging/src/k8s.io/component-helpers/nodedeclaredfeatures/framework.go,
InferForPodScheduling; features/registry.go, restartallcontainers, usernamespaceshostnetwork.
"""

from __future__ import annotations

from services.kube.pod import PodSpec

RESTART_ALL_CONTAINERS = "RestartAllContainersOnContainerExits"
USER_NAMESPACES_WITH_HOST_NETWORK = "UserNamespacesHostNetworkSupport"
_RESTARTS_ALL = "RestartAllContainers"


def required_features(spec: PodSpec) -> frozenset[str]:
    """Return the features that a node must declare."""
    features: set[str] = set()
    containers = (*spec.containers, *spec.init_containers)
    if any(_RESTARTS_ALL in container.restart_actions for container in containers):
        features.add(RESTART_ALL_CONTAINERS)
    if spec.host_network and spec.host_users is False:
        features.add(USER_NAMESPACES_WITH_HOST_NETWORK)
    return frozenset(features)
