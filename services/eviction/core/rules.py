"""What differs between the kubelets that are followed, chosen once for a manager.

Source: kubernetes v1.27 and v1.32 pkg/kubelet/eviction/eviction_manager.go and helpers.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from services.eviction.core.config import EvictionConfig, Mode
from services.eviction.core.containerfs import ThresholdPhases, derived, unchanged
from services.eviction.core.layout import Layout, choose_layout
from services.eviction.core.pod import EvictionPod
from services.eviction.core.signals import CONTAINERFS_SIGNALS, Signal
from services.eviction.core.thresholds import Threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """One kubelet's variants.

    `immediate_grace_s` is what a hard or local-storage eviction grants, `soft_grace_s` computes
    what a soft one does. `init_containers_in_messages` names init containers that use more than
    they asked for; `sidecars` counts restartable init containers into a pod's limits.
    """

    signals: frozenset[Signal]
    immediate_grace_s: int
    soft_grace_s: Callable[[EvictionConfig, EvictionPod], int]
    layout: Callable[[EvictionConfig], Layout]
    phases: Callable[[tuple[Threshold, ...], Layout], ThresholdPhases]
    init_containers_in_messages: bool
    sidecars: bool


def rules_of(mode: Mode) -> Rules:
    """Return the rules that the mode stands for."""
    return _RULES[mode]


def _maximum_grace_s(config: EvictionConfig, _pod: EvictionPod) -> int:
    return config.max_pod_grace_s


def _shorter_grace_s(config: EvictionConfig, pod: EvictionPod) -> int:
    if pod.termination_grace_s is None or config.allow_overwrite_tgps:
        return config.max_pod_grace_s
    return min(config.max_pod_grace_s, pod.termination_grace_s)


def _layout(config: EvictionConfig) -> Layout:
    return choose_layout(
        dedicated_imagefs=config.dedicated_imagefs, split_containerfs=config.split_containerfs
    )


def _layout_without_split(config: EvictionConfig) -> Layout:
    return choose_layout(dedicated_imagefs=config.dedicated_imagefs, split_containerfs=False)


_RULES: Mapping[Mode, Rules] = MappingProxyType(
    {
        Mode.V1_32: Rules(
            signals=frozenset(Signal),
            immediate_grace_s=1,
            soft_grace_s=_shorter_grace_s,
            layout=_layout,
            phases=derived,
            init_containers_in_messages=True,
            sidecars=True,
        ),
        Mode.V1_27: Rules(
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
