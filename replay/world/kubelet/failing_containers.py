"""Containers that wait because they crash or cannot be created, as their pod's status says it.

Source: kubernetes v1.34 pkg/kubelet/kuberuntime/kuberuntime_container.go,
pkg/kubelet/images/types.go, pkg/kubelet/container/sync_result.go (reasons of waiting containers).
"""

from __future__ import annotations

from reprieve.kube.v1beta1.pod_pb2 import PodStatus

_REASONS = frozenset(
    {
        *("CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull"),
        *("InvalidImageName", "ImageInspectError", "RegistryUnavailable"),
        *("CreateContainerConfigError", "CreateContainerError", "RunContainerError"),
    }
)


def failing_reason(status: PodStatus) -> str:
    """Return why a container of a pod cannot run, "" if all may."""
    for container in (*status.init_container_statuses, *status.container_statuses):
        if container.state.waiting.reason in _REASONS:
            return container.state.waiting.reason
    return ""
