"""Requests, limits and quality of service of a pod."""

from __future__ import annotations

import pytest

from services.eviction.core.pod import (
    EvictionContainer,
    EvictionPod,
    EvictionVolume,
    QosClass,
    limit,
    qos_class,
    request,
)
from services.kube.quantity import parse


def _container(
    requests: dict[str, str] | None = None,
    limits: dict[str, str] | None = None,
    restart_policy: str = "",
) -> EvictionContainer:
    return EvictionContainer(
        name="c",
        requests={name: parse(text) for name, text in (requests or {}).items()},
        limits={name: parse(text) for name, text in (limits or {}).items()},
        restart_policy=restart_policy,
    )


def _pod(
    *containers: EvictionContainer,
    init: tuple[EvictionContainer, ...] = (),
    overhead: dict[str, str] | None = None,
) -> EvictionPod:
    return EvictionPod(
        uid="u",
        namespace="default",
        name="p",
        containers=containers,
        init_containers=init,
        overhead={name: parse(text) for name, text in (overhead or {}).items()},
    )


def test_a_request_is_the_larger_of_containers_and_each_init_container() -> None:
    """Init containers run one by one before the others."""
    pod = _pod(
        _container({"memory": "1Gi"}),
        _container({"memory": "500Mi"}),
        init=(_container({"memory": "2Gi"}), _container({"memory": "1Gi"})),
    )
    assert str(request(pod, "memory")) == "2Gi"


def test_overhead_is_added_only_to_a_nonzero_request() -> None:
    """A pod that requests nothing gets no overhead either."""
    assert str(request(_pod(_container(), overhead={"memory": "10Mi"}), "memory")) == "0"
    asking = _pod(_container({"memory": "1Mi"}), overhead={"memory": "10Mi"})
    assert str(request(asking, "memory")) == "11Mi"


def test_a_sidecars_limit_adds_up_from_v1_28_on() -> None:
    """Before, it is an init container like any other."""
    sidecar = _container(limits={"ephemeral-storage": "1Gi"}, restart_policy="Always")
    later = _container(limits={"ephemeral-storage": "3Gi"})
    pod = _pod(_container(limits={"ephemeral-storage": "2Gi"}), init=(sidecar, later))
    assert str(limit(pod, "ephemeral-storage", sidecars=True)) == "4Gi"
    assert str(limit(pod, "ephemeral-storage", sidecars=False)) == "3Gi"


def test_a_pod_without_limits_has_none() -> None:
    """None differs from a limit of 0."""
    assert limit(_pod(_container()), "ephemeral-storage", sidecars=True) is None


@pytest.mark.parametrize(
    ("requests", "limits", "expected"),
    [
        ({}, {}, QosClass.BEST_EFFORT),
        ({"ephemeral-storage": "1Gi", "memory": "0"}, {}, QosClass.BEST_EFFORT),
        ({"memory": "1Gi"}, {}, QosClass.BURSTABLE),
        ({}, {"cpu": "1", "memory": "1Gi"}, QosClass.BURSTABLE),
        ({"cpu": "1", "memory": "1Gi"}, {"cpu": "1000m", "memory": "1024Mi"}, QosClass.GUARANTEED),
    ],
)
def test_cpu_and_memory_alone_decide_the_quality_of_service(
    requests: dict[str, str], limits: dict[str, str], expected: QosClass
) -> None:
    """Guaranteed needs both, limited and requested alike."""
    assert qos_class(_pod(_container(requests, limits))) is expected


@pytest.mark.parametrize(
    ("kind", "medium", "expected"),
    [
        ("hostPath", "", True),
        ("configMap", "", True),
        ("emptyDir", "", True),
        ("emptyDir", "Memory", False),
        ("secret", "", False),
        ("persistentVolumeClaim", "", False),
    ],
)
def test_local_volumes_are_on_the_nodes_own_disk(kind: str, medium: str, *, expected: bool) -> None:
    """Secrets lie in memory, claims elsewhere."""
    assert EvictionVolume(name="v", kind=kind, medium=medium).is_local is expected


def test_static_mirror_and_system_pods_are_critical() -> None:
    """A pod from the API server with an ordinary priority is not."""

    def pod(priority: int = 0, **annotations: str) -> EvictionPod:
        named = {f"kubernetes.io/config.{key}": text for key, text in annotations.items()}
        return EvictionPod(
            uid="u", namespace="default", name="p", priority=priority, annotations=named
        )

    assert pod(source="file").is_critical
    assert pod(mirror="").is_critical
    assert pod(priority=2_000_000_000).is_critical
    assert not pod(priority=1_999_999_999, source="api").is_critical
