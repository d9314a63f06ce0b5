"""The autoscaler's options: Cluster Autoscaler's flags, with their names and defaults.

Some options can be set for a single group, too: GroupOptions. A group is made with the options in
force for it: its own, and otherwise those of the flags.

Source: kubernetes/autoscaler 1.36 config/flags/flags.go; config/autoscaling_options.go,
NodeGroupAutoscalingOptions; config/const.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from services.kube.time import HOUR_NS, MINUTE_NS, SECOND_NS, DurationError, parse_duration_ns

_GIB = 1024**3
_CORES_MAX = 5000 * 64
_MEMORY_GIB_MAX = 5000 * 64 * 20


class OptionsError(ValueError):
    """A flag that does not exist, or whose text cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions:
    """Options that a group may have of its own; thresholds are shares of allocatable."""

    scale_down_utilization_threshold: float = 0.5
    scale_down_gpu_utilization_threshold: float = 0.5
    scale_down_unneeded_ns: int = 10 * MINUTE_NS
    scale_down_unready_ns: int = 20 * MINUTE_NS
    max_node_provision_ns: int = 15 * MINUTE_NS
    max_node_startup_ns: int = 15 * MINUTE_NS
    ignore_daemonsets_utilization: bool = False
    zero_or_max_node_scaling: bool = False
    allow_non_atomic_scale_up_to_max: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The minimum and the maximum of a resource in a cluster."""

    least: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """All options; durations in ns, memory in bytes, `gpu_total` by the GPU label's value."""

    group_defaults: GroupOptions = field(default_factory=GroupOptions)
    scan_interval_ns: int = 10 * SECOND_NS
    # Scale-up.
    scale_up_from_zero: bool = True
    max_nodes_total: int = 0
    cores_total: Bounds = field(default_factory=lambda: Bounds(least=0, most=_CORES_MAX))
    memory_total: Bounds = field(
        default_factory=lambda: Bounds(least=0, most=_MEMORY_GIB_MAX * _GIB)
    )
    gpu_total: Mapping[str, Bounds] = field(default_factory=dict)
    expander: str = "least-waste"
    balance_similar_node_groups: bool = False
    memory_difference_ratio: float = 0.015
    max_free_difference_ratio: float = 0.05
    max_allocatable_difference_ratio: float = 0.05
    balancing_ignore_labels: tuple[str, ...] = ()
    balancing_labels: tuple[str, ...] = ()
    new_pod_scale_up_delay_ns: int = 0
    expendable_pods_priority_cutoff: int = -10
    max_nodes_per_scaleup: int = 1000
    fastpath_binpacking_enabled: bool = False
    force_ds: bool = False
    enforce_node_group_min_size: bool = False
    startup_taints: tuple[str, ...] = ()
    startup_taint_prefixes: tuple[str, ...] = ()
    status_taints: tuple[str, ...] = ()
    scale_from_unschedulable: bool = False
    # The state of the cluster.
    max_total_unready_percentage: float = 45
    ok_total_unready_count: int = 3
    initial_node_group_backoff_ns: int = 5 * MINUTE_NS
    max_node_group_backoff_ns: int = 30 * MINUTE_NS
    node_group_backoff_reset_ns: int = 3 * HOUR_NS
    force_delete_unregistered_nodes: bool = False
    force_delete_failed_nodes: bool = False
    # Scale-down.
    scale_down_enabled: bool = True
    scale_down_unready_enabled: bool = True
    scale_down_delay_after_add_ns: int = 10 * MINUTE_NS
    scale_down_delay_after_delete_ns: int = 0
    scale_down_delay_after_failure_ns: int = 3 * MINUTE_NS
    scale_down_delay_type_local: bool = False
    unremovable_node_recheck_ns: int = 5 * MINUTE_NS
    ignore_mirror_pods_utilization: bool = False
    max_scale_down_parallelism: int = 10
    max_drain_parallelism: int = 1
    max_bulk_soft_taint_count: int = 10
    cordon_node_before_terminating: bool = True
    node_delete_delay_after_taint_ns: int = 5 * SECOND_NS
    node_deletion_delay_timeout_ns: int = 2 * MINUTE_NS
    node_deletion_batcher_interval_ns: int = 0
    max_graceful_termination_s: int = 600
    max_pod_eviction_ns: int = 2 * MINUTE_NS
    daemonset_eviction_for_empty_nodes: bool = False
    daemonset_eviction_for_occupied_nodes: bool = True
    skip_nodes_with_system_pods: bool = True
    skip_nodes_with_local_storage: bool = True
    skip_nodes_with_custom_controller_pods: bool = True
    min_replica_count: int = 0
    blocking_system_pod_disruption_ns: int = HOUR_NS


def from_flags(flags: Mapping[str, str]) -> Options:
    """Return the options that flags, by name and as on a command line, ask for.

    Raises OptionsError for an unknown flag and for an unreadable value.
    """
    for_groups: dict[str, Any] = {}
    for_all: dict[str, Any] = {}
    for flag, text in flags.items():
        if flag not in _FLAGS:
            raise OptionsError(f"--{flag} is not a flag of the autoscaler")
        option, read = _FLAGS[flag]
        try:
            value = read(text)
        except (ValueError, DurationError) as error:
            raise OptionsError(f"--{flag}: {text!r} cannot be read: {error}") from error
        (for_groups if option in _GROUP_OPTIONS else for_all)[option] = value
    options = Options(group_defaults=GroupOptions(**for_groups))
    return replace(options, **for_all)


def group_options(texts: Mapping[str, str], defaults: GroupOptions) -> GroupOptions:
    """Return a group's options: those of `texts`, by the names of flags, and else the defaults.

    Raises OptionsError for a name that is not an option of groups, and for an unreadable value.
    """
    values: dict[str, Any] = {}
    for name, text in texts.items():
        if name not in _OF_GROUPS:
            raise OptionsError(f"{name} is not an option of a group")
        option, read = _OF_GROUPS[name]
        try:
            values[option] = read(text)
        except (ValueError, DurationError) as error:
            raise OptionsError(f"{name}: {text!r} cannot be read: {error}") from error
    return replace(defaults, **values)


def _boolean(text: str) -> bool:
    """Read a truth value as Go's strconv.ParseBool does."""
    if text in {"1", "t", "T", "true", "TRUE", "True"}:
        return True
    if text in {"0", "f", "F", "false", "FALSE", "False"}:
        return False
    raise ValueError("true or false is expected")


def _bounds(text: str, unit: int = 1) -> Bounds:
    least, colon, most = text.partition(":")
    if not colon:
        raise ValueError("MIN:MAX is expected")
    bounds = Bounds(least=int(least) * unit, most=int(most) * unit)
    if not 0 <= bounds.least <= bounds.most:
        raise ValueError("0 <= MIN <= MAX is expected")
    return bounds


def _gibibytes(text: str) -> Bounds:
    return _bounds(text, _GIB)


def _gpu_bounds(text: str) -> dict[str, Bounds]:
    """Read TYPE:MIN:MAX, several separated by commas."""
    parts = (part.partition(":") for part in text.split(",") if part)
    return {gpu_type: _bounds(bounds) for gpu_type, _, bounds in parts}


def _names(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)


_READERS: Mapping[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "bool": _boolean,
    "str": str,
    "tuple[str, ...]": _names,
}
_NAMED_OTHERWISE = {
    "max_graceful_termination_s": "max-graceful-termination-sec",
    "scale_down_unneeded_ns": "scale-down-unneeded-time",
    "scale_down_unready_ns": "scale-down-unready-time",
    "max_node_provision_ns": "max-node-provision-time",
    "max_node_startup_ns": "max-node-startup-time",
    "max_pod_eviction_ns": "max-pod-eviction-time",
    "unremovable_node_recheck_ns": "unremovable-node-recheck-timeout",
    "initial_node_group_backoff_ns": "initial-node-group-backoff-duration",
    "max_node_group_backoff_ns": "max-node-group-backoff-duration",
    "node_group_backoff_reset_ns": "node-group-backoff-reset-timeout",
    "blocking_system_pod_disruption_ns": "blocking-system-pod-distruption-timeout",
    "startup_taints": "startup-taint",
    "startup_taint_prefixes": "startup-taint-prefix",
    "status_taints": "status-taint",
    "balancing_ignore_labels": "balancing-ignore-label",
    "balancing_labels": "balancing-label",
}
"""Flags whose names do not follow from the options'; the misspelling is upstream's."""
_READ_OTHERWISE: Mapping[str, Callable[[str], Any]] = {
    "cores_total": _bounds,
    "memory_total": _gibibytes,
    "gpu_total": _gpu_bounds,
}
_NO_FLAGS = {"group_defaults", "zero_or_max_node_scaling", "allow_non_atomic_scale_up_to_max"}
_GROUP_OPTIONS = {option.name for option in fields(GroupOptions)}


def _reader(option: str, type_: str) -> Callable[[str], Any]:
    if option.endswith("_ns"):
        return parse_duration_ns
    return _READ_OTHERWISE.get(option) or _READERS[type_]


_FLAGS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    _NAMED_OTHERWISE.get(option.name, option.name.removesuffix("_ns").replace("_", "-")): (
        option.name,
        _reader(option.name, str(option.type)),
    )
    for option in (*fields(GroupOptions), *fields(Options))
    if option.name not in _NO_FLAGS
}
"""Each flag's option, and how its text is read."""
_OF_GROUPS = {
    name: (option, read) for name, (option, read) in _FLAGS.items() if option in _GROUP_OPTIONS
} | {
    name.replace("_", "-"): (name, _boolean)
    for name in ("zero_or_max_node_scaling", "allow_non_atomic_scale_up_to_max")
}
