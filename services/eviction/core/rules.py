"""The differences between the supported kubelet versions; a manager has the rules of one version.

Source: kubernetes v1.27 and v1.32 pkg/kubelet/eviction/eviction_manager.go and helpers.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from services.eviction.core.observations import FileSystemLayout, choose_layout
from services.eviction.core.pod import EvictionPod
from services.eviction.core.signals import CONTAINERFS_SIGNALS, Signal
from services.eviction.core.thresholds import Threshold
from services.kube.kubelet import EvictionConfig, Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletRules:
    """The rules of one version of the kubelet.

    immediate_grace_s: the grace period of a hard or local-storage eviction. soft_grace_s: computes
    the grace period of a soft eviction. init_containers_in_messages: whether messages name init
    containers that use more than they request. sidecars: whether restartable init containers count
    in a pod's limits.
    """

    signals: frozenset[Signal]
    immediate_grace_s: int
    soft_grace_s: Callable[[EvictionConfig, EvictionPod], int]
    layout: Callable[[EvictionConfig], FileSystemLayout]
    phases: Callable[[tuple[Threshold, ...], FileSystemLayout], ThresholdPhases]
    init_containers_in_messages: bool
    sidecars: bool


def rules_of(mode: Mode) -> KubeletRules:
    """Return the rules of the kubelet that `mode` names."""
    return _RULES[mode]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdPhases:
    """A manager's thresholds in its first step and after.

    `first_step` has the thresholds that the step which detects the file systems observes.
    `later_steps` has those of that step's reclaim and of every later step. They differ because
    upstream appends the derived thresholds during the first step, which still uses the old list.
    """

    first_step: tuple[Threshold, ...]
    later_steps: tuple[Threshold, ...]


def unchanged(thresholds: tuple[Threshold, ...], _layout: FileSystemLayout) -> ThresholdPhases:
    """Return the thresholds unchanged, because v1.27 has no containerfs."""
    return ThresholdPhases(first_step=thresholds, later_steps=thresholds)


def derived(thresholds: tuple[Threshold, ...], layout: FileSystemLayout) -> ThresholdPhases:
    """Return the thresholds, with those of containerfs derived from nodefs or imagefs.

    Writable layers are on nodefs or on imagefs, so the thresholds of that file system apply: a
    configured threshold on containerfs is replaced, or removed if that file system has none.
    Source: kubernetes v1.32 pkg/kubelet/eviction/helpers.go, UpdateContainerFsThresholds.
    """
    if layout.containerfs_is is None:
        return unchanged(thresholds, layout)
    in_place: list[Threshold | None] = list(thresholds)
    appended: list[Threshold] = []
    for signal, source in _SHARED_SIGNALS[layout.containerfs_is].items():
        for hard in (True, False):
            model = _last(thresholds, source, hard=hard)
            copy = None if model is None else replace(model[1], signal=signal)
            overwritten = _last(thresholds, signal, hard=hard)
            if overwritten is not None:
                in_place[overwritten[0]] = copy
            elif copy is not None:
                appended.append(copy)
    first_step = tuple(threshold for threshold in in_place if threshold is not None)
    return ThresholdPhases(first_step=first_step, later_steps=(*first_step, *appended))


def _last(
    thresholds: tuple[Threshold, ...], signal: Signal, *, hard: bool
) -> tuple[int, Threshold] | None:
    last = None
    for index, threshold in enumerate(thresholds):
        if threshold.signal is signal and threshold.is_hard is hard:
            last = index, threshold
    return last


def _maximum_grace_s(config: EvictionConfig, _pod: EvictionPod) -> int:
    return config.max_pod_grace_s


def _shorter_grace_s(config: EvictionConfig, pod: EvictionPod) -> int:
    if pod.termination_grace_s is None or config.allow_overwrite_tgps:
        return config.max_pod_grace_s
    return min(config.max_pod_grace_s, pod.termination_grace_s)


def _layout(config: EvictionConfig) -> FileSystemLayout:
    return choose_layout(
        dedicated_imagefs=config.dedicated_imagefs, split_containerfs=config.split_containerfs
    )


def _layout_without_split(config: EvictionConfig) -> FileSystemLayout:
    return choose_layout(dedicated_imagefs=config.dedicated_imagefs, split_containerfs=False)


_SHARED_SIGNALS: dict[str, dict[Signal, Signal]] = {
    "nodefs": {
        Signal.CONTAINERFS_AVAILABLE: Signal.NODEFS_AVAILABLE,
        Signal.CONTAINERFS_INODES_FREE: Signal.NODEFS_INODES_FREE,
    },
    "imagefs": {
        Signal.CONTAINERFS_AVAILABLE: Signal.IMAGEFS_AVAILABLE,
        Signal.CONTAINERFS_INODES_FREE: Signal.IMAGEFS_INODES_FREE,
    },
}

_RULES: Mapping[Mode, KubeletRules] = MappingProxyType(
    {
        Mode.V1_32: KubeletRules(
            signals=frozenset(Signal),
            immediate_grace_s=1,
            soft_grace_s=_shorter_grace_s,
            layout=_layout,
            phases=derived,
            init_containers_in_messages=True,
            sidecars=True,
        ),
        Mode.V1_27: KubeletRules(
            signals=frozenset(Signal) - CONTAINERFS_SIGNALS,
            immediate_grace_s=0,
            soft_grace_s=_maximum_grace_s,
            layout=_layout_without_split,
            phases=unchanged,
            init_containers_in_messages=False,
            sidecars=False,
        ),
    }
)
