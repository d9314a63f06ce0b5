"""Converts EvictionConfig: the message, a KubeletConfiguration file in it, and the core's value."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from reprieve.eviction.v1beta1 import eviction_pb2
from services.config.kubelet import ENFORCEMENTS, read_kubelet_configuration
from services.eviction.core.manager import Manager
from services.eviction.core.thresholds import ConfigError, Threshold
from services.eviction.fleet import ParsedConfig
from services.kube.kubelet import EvictionConfig, Mode, default_hard
from services.kube.time import SECOND_NS
from services.rpc.errors import FieldError
from services.rpc.kube import fields
from services.typed import DataError

_IN_A_FILE: Mapping[str, str] = MappingProxyType(
    {
        "hard": "evictionHard",
        "soft": "evictionSoft",
        "soft_grace": "evictionSoftGracePeriod",
        "min_reclaim": "evictionMinimumReclaim",
    }
)
_IN_THE_MESSAGE: Mapping[str, str] = MappingProxyType(
    {"min_reclaim": "minimum_reclaim", "max_pod_grace_s": "max_pod_grace_period_duration_ns"}
)
_BESIDE_A_FILE = frozenset(
    {"rules", "dedicated_image_fs", "split_container_fs", "kubelet_configuration"}
)


def config_from_message(message: eviction_pb2.EvictionConfig, *, field: str) -> ParsedConfig:
    """Return the configuration with defaults filled in; `field` is the message's path.

    Raises FieldError, with the kubelet's text, for settings that a kubelet refuses.
    """
    if message.kubelet_configuration:
        config, warnings, path = *_from_file(message, field), f"{field}.kubelet_configuration"
        named = path_in_file
    else:
        config, warnings, path = _from_fields(message, field), (), field
        named = _path_in_the_message
    try:
        return read_config(config, warnings)
    except ConfigError as error:
        raise FieldError(f"{path}.{named(error)}", str(error)) from None


def read_config(config: EvictionConfig, warnings: tuple[str, ...] = ()) -> ParsedConfig:
    """Return a configuration with its thresholds parsed. Raises ConfigError."""
    return ParsedConfig(config=config, thresholds=Manager(config).thresholds, warnings=warnings)


def path_in_file(error: ConfigError) -> str:
    """Return the path of the refused setting in a KubeletConfiguration."""
    return _path(error, _IN_A_FILE)


def config_to_message(config: EvictionConfig) -> eviction_pb2.EvictionConfig:
    """Return `config` as a message with every setting in its field."""
    return eviction_pb2.EvictionConfig(
        rules=config.mode.value,
        hard=config.hard,
        soft=config.soft,
        soft_grace=config.soft_grace,
        minimum_reclaim=config.min_reclaim,
        enforce_node_allocatable=config.enforce_node_allocatable,
        pressure_transition_duration_ns=config.pressure_transition_ns,
        max_pod_grace_period_duration_ns=config.max_pod_grace_s * SECOND_NS or None,
        dedicated_image_fs=config.dedicated_imagefs,
        split_container_fs=config.split_containerfs,
        local_storage_isolation=config.local_storage_isolation,
        allow_overwrite_termination_grace=config.allow_overwrite_tgps,
        kernel_memcg_notification=config.kernel_memcg_notification,
    )


def threshold_to_message(threshold: Threshold) -> eviction_pb2.Threshold:
    """Return a threshold as a message."""
    value, reclaim = threshold.value, threshold.min_reclaim
    return eviction_pb2.Threshold(
        signal=threshold.signal.value,
        quantity="" if value.quantity is None else str(value.quantity),
        capacity_ratio=None if value.quantity is not None else value.percentage,
        grace_period_duration_ns=threshold.grace_ns or None,
        minimum_reclaim="" if reclaim is None else str(reclaim),
        text=str(threshold),
    )


def _path_in_the_message(error: ConfigError) -> str:
    return _path(error, _IN_THE_MESSAGE)


def _path(error: ConfigError, names: Mapping[str, str]) -> str:
    setting, bracket, rest = error.field.partition("[")
    return f"{names.get(setting, setting)}{bracket}{rest}"


def _mode(message: eviction_pb2.EvictionConfig, field: str) -> Mode:
    return fields.choice(Mode, message.rules, f"{field}.rules") if message.rules else Mode.V1_32


def _from_file(
    message: eviction_pb2.EvictionConfig, field: str
) -> tuple[EvictionConfig, tuple[str, ...]]:
    for descriptor, _ in message.ListFields():
        if descriptor.name not in _BESIDE_A_FILE:
            raise FieldError(
                f"{field}.{descriptor.name}", "leave it out: kubelet_configuration sets it"
            )
    try:
        read = read_kubelet_configuration(
            message.kubelet_configuration,
            mode=_mode(message, field),
            dedicated_imagefs=message.dedicated_image_fs,
            split_containerfs=message.split_container_fs,
        )
    except DataError as error:
        path = f"{field}.kubelet_configuration"
        raise FieldError(f"{path}.{error.field}" if error.field else path, str(error)) from None
    return read.eviction, read.warnings


def _from_fields(message: eviction_pb2.EvictionConfig, field: str) -> EvictionConfig:
    mode = _mode(message, field)
    for index, level in enumerate(message.enforce_node_allocatable):
        if level not in ENFORCEMENTS:
            names = ", ".join(f'"{name}"' for name in ENFORCEMENTS)
            raise FieldError(
                f"{field}.enforce_node_allocatable[{index}]",
                f'unknown value "{level}": use one of {names}',
            )
    for name in ("pressure_transition_duration_ns", "max_pod_grace_period_duration_ns"):
        if getattr(message, name) < 0:
            raise FieldError(f"{field}.{name}", "must not be negative")
    if message.max_pod_grace_period_duration_ns % SECOND_NS:
        raise FieldError(
            f"{field}.max_pod_grace_period_duration_ns", "must be whole seconds, as a kubelet's is"
        )
    hard = dict(message.hard)
    return EvictionConfig(
        mode=mode,
        hard=default_hard(mode) if message.use_defaults and not hard else hard,
        soft=dict(message.soft),
        soft_grace=dict(message.soft_grace),
        min_reclaim=dict(message.minimum_reclaim),
        enforce_node_allocatable=tuple(message.enforce_node_allocatable),
        pressure_transition_ns=(
            message.pressure_transition_duration_ns
            if message.HasField("pressure_transition_duration_ns")
            else EvictionConfig().pressure_transition_ns
        ),
        max_pod_grace_s=message.max_pod_grace_period_duration_ns // SECOND_NS,
        dedicated_imagefs=message.dedicated_image_fs,
        split_containerfs=message.split_container_fs,
        local_storage_isolation=(
            message.local_storage_isolation if message.HasField("local_storage_isolation") else True
        ),
        allow_overwrite_tgps=message.allow_overwrite_termination_grace,
        kernel_memcg_notification=message.kernel_memcg_notification,
    )
