"""KubeletConfiguration as eviction reads it: defaults, refusals, warnings."""

from __future__ import annotations

import orjson
import pytest

from services.config.kubelet import read_kubelet_configuration
from services.kube.kubelet import EvictionConfig, Mode, default_hard
from services.kube.time import SECOND_NS
from services.typed import DataError

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
S = SECOND_NS


def _eviction(body: str, *, split_containerfs: bool = False) -> EvictionConfig:
    return read_kubelet_configuration(HEAD + body, split_containerfs=split_containerfs).eviction


def _refused(text: str) -> tuple[str, str]:
    with pytest.raises(DataError) as caught:
        read_kubelet_configuration(text)
    return caught.value.field, str(caught.value)


def test_an_empty_configuration_has_the_kubelets_defaults() -> None:
    """Five hard thresholds, 5 min of transition, allocatable memory enforced for pods."""
    eviction = _eviction("")
    assert eviction == EvictionConfig(
        hard={
            "memory.available": "100Mi",
            "nodefs.available": "10%",
            "nodefs.inodesFree": "5%",
            "imagefs.available": "15%",
            "imagefs.inodesFree": "5%",
        },
        enforce_node_allocatable=("pods",),
        pressure_transition_ns=300 * S,
    )


def test_the_older_kubelet_has_no_default_on_image_inodes() -> None:
    """It came later than v1.27."""
    read = read_kubelet_configuration(HEAD, mode=Mode.V1_27)
    assert "imagefs.inodesFree" not in read.eviction.hard
    assert len(read.eviction.hard) == 4


def test_every_served_field_is_read() -> None:
    """As YAML and as JSON, which is YAML."""
    document = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "evictionHard": {"memory.available": "500Mi"},
        "evictionSoft": {"memory.available": "1Gi"},
        "evictionSoftGracePeriod": {"memory.available": "1m30s"},
        "evictionMinimumReclaim": {"memory.available": "5%"},
        "evictionPressureTransitionPeriod": "30s",
        "evictionMaxPodGracePeriod": 60,
        "enforceNodeAllocatable": ["none"],
        "localStorageCapacityIsolation": False,
        "singleProcessOOMKill": True,
        "featureGates": {"AllowOverwriteTerminationGracePeriodSeconds": True},
    }
    read = read_kubelet_configuration(orjson.dumps(document).decode())
    assert read.warnings == ()
    assert read.single_process_oom_kill
    assert read.eviction == EvictionConfig(
        hard={"memory.available": "500Mi"},
        soft={"memory.available": "1Gi"},
        soft_grace={"memory.available": "1m30s"},
        min_reclaim={"memory.available": "5%"},
        enforce_node_allocatable=("none",),
        pressure_transition_ns=30 * S,
        max_pod_grace_s=60,
        local_storage_isolation=False,
        allow_overwrite_tgps=True,
    )


def test_hard_thresholds_replace_the_defaults_unless_they_are_merged() -> None:
    """An empty mapping replaces them, too; null is absent."""
    given = 'evictionHard: {memory.available: "1Gi"}\n'
    assert _eviction(given).hard == {"memory.available": "1Gi"}
    merged = _eviction(given + "mergeDefaultEvictionSettings: true\n").hard
    assert merged == {**default_hard(Mode.V1_32), "memory.available": "1Gi"}
    assert _eviction("evictionHard: {}\n").hard == {}
    assert _eviction("evictionHard:\n").hard == default_hard(Mode.V1_32)


def test_a_transition_period_of_zero_is_the_default() -> None:
    """A kubelet cannot tell it from an absent one."""
    assert _eviction("evictionPressureTransitionPeriod: 0s\n").pressure_transition_ns == 300 * S


def test_a_split_container_file_system_needs_its_gate() -> None:
    """The gate is on unless the file switches it off."""
    assert _eviction("", split_containerfs=True).split_containerfs
    off = "featureGates: {KubeletSeparateDiskGC: false}\n"
    assert not _eviction(off, split_containerfs=True).split_containerfs


def test_kernel_notifications_are_off_by_default() -> None:
    """As a kubelet has it."""
    assert not _eviction("").kernel_memcg_notification
    assert _eviction("kernelMemcgNotification: true\n").kernel_memcg_notification


def test_known_fields_that_are_not_served_are_named_in_warnings() -> None:
    """In the file's order, gates last."""
    body = "memorySwap: {}\nmaxPods: 30\nfeatureGates: {NodeSwap: true}\n"
    assert read_kubelet_configuration(HEAD + body).warnings == (
        "memorySwap has no effect: eviction does not read it.",
        "maxPods has no effect: eviction does not read it.",
        "featureGates[NodeSwap] has no effect: eviction does not read it.",
    )


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ("evictionhard: {}", "evictionhard"),
        ("evictionHard: [1]", "evictionHard"),
        ("evictionHard: {memory.available: 5}", "evictionHard[memory.available]"),
        ("evictionSoft: {1: 2}", "evictionSoft[1]"),
        ("evictionPressureTransitionPeriod: 30", "evictionPressureTransitionPeriod"),
        ("evictionPressureTransitionPeriod: 30x", "evictionPressureTransitionPeriod"),
        ("evictionPressureTransitionPeriod: -1s", "evictionPressureTransitionPeriod"),
        ("evictionMaxPodGracePeriod: true", "evictionMaxPodGracePeriod"),
        ("evictionMaxPodGracePeriod: -1", "evictionMaxPodGracePeriod"),
        ("evictionMaxPodGracePeriod: 2147483648", "evictionMaxPodGracePeriod"),
        ("mergeDefaultEvictionSettings: 1\nevictionHard: {}", "mergeDefaultEvictionSettings"),
        ("mergeDefaultEvictionSettings: x", "mergeDefaultEvictionSettings"),
        ("kernelMemcgNotification: 1", "kernelMemcgNotification"),
        ("localStorageCapacityIsolation: x", "localStorageCapacityIsolation"),
        ("enforceNodeAllocatable: pods", "enforceNodeAllocatable"),
        ("enforceNodeAllocatable: [pods, cpus]", "enforceNodeAllocatable[1]"),
        ("enforceNodeAllocatable: [[pods]]", "enforceNodeAllocatable[0]"),
        ("enforceNodeAllocatable: [pods, pods]", "enforceNodeAllocatable[1]"),
        ("enforceNodeAllocatable: [none, pods]", "enforceNodeAllocatable"),
        ("featureGates: [x]", "featureGates"),
        ("featureGates: {NodeSwap: 1}", "featureGates[NodeSwap]"),
        ("maxPods: 1\nmaxPods: 2", "maxPods"),
        ("evictionHard: {pid.available: '1', pid.available: '2'}", "evictionHard[pid.available]"),
        ("a: [{b: 1}, {c: 1, c: 2}]", "a[1].c"),
    ],
)
def test_a_setting_that_a_kubelet_refuses_is_refused_with_its_path(body: str, field: str) -> None:
    """Unknown fields and wrong types, as strict decoding and validation do."""
    assert _refused(HEAD + body)[0] == field


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", ""),
        ("- 1", ""),
        ("{", ""),
        ("? [a]\n: 1", ""),
        (HEAD + "---\n" + HEAD, ""),
        ("a: !!timestamp x", ""),
        ("kind: KubeletConfiguration", "apiVersion"),
        ("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: Pod", "kind"),
    ],
)
def test_what_is_not_a_kubelet_configuration_is_refused(text: str, field: str) -> None:
    """Whatever YAML does with it."""
    assert _refused(text)[0] == field


def test_a_repeated_key_is_reported_with_its_line() -> None:
    """YAML itself would take the last."""
    assert _refused(HEAD + "maxPods: 1\nmaxPods: 2")[1] == 'line 4: "maxPods" comes twice'
