"""The file of --autoscaler: the autoscaler's flags and its node groups, as YAML or JSON.

It is read strictly: each field once, known, and of its type. A group's template is a node as
`kubectl get node -o yaml` prints it, of which labels, taints, capacity and allocatable count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from replay.autoscaling.errors import GroupsError
from replay.durations import duration_ns
from replay.world.controllers.autoscaling.node_groups import (
    SCAN_INTERVAL_NS,
    Autoscaling,
    NodeGroup,
)
from reprieve.autoscaler.v1beta1 import autoscaler_pb2
from reprieve.kube.v1beta1 import node_pb2
from services.config.strict import document, reading
from services.rpc.errors import FieldError
from services.rpc.kube import json_codec
from services.typed import DataError

_SCAN_INTERVAL = "scan-interval"
_POD_DELAY = "new-pod-scale-up-delay"
_SIZE_MAX = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPrice:
    """The hourly price of pods' requests, for the expander "price"."""

    core: float = 0.0
    gib: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesFile:
    """The nodes of the trace in a group: those with all labels, and those with these names."""

    labels: Mapping[str, str] = field(default_factory=dict)
    names: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFile:
    """A group as the file has it: with a template, or with the name of a node to copy.

    provisioning_delay: a duration, or a list of durations.
    """

    name: str
    min: int = 0
    max: int
    nodes: NodesFile = field(default_factory=NodesFile)
    template: object = None
    copy: str = ""
    price: float | None = None
    provisioning_delay: object = None
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoscalerFile:
    """The whole file."""

    flags: Mapping[str, object] = field(default_factory=dict)
    gpu_label: str = ""
    pod_price: PodPrice | None = None
    priorities: str | None = None
    groups: Sequence[GroupFile]


def read(text: str) -> AutoscalerFile:
    """Return the content of a file. Raises GroupsError."""
    try:
        file = reading().read(AutoscalerFile, document(text))
    except DataError as error:
        raise GroupsError(f"{error.field}: {error}" if error.field else str(error)) from None
    names = [group.name for group in file.groups]
    if not names:
        raise GroupsError("groups: at least one is required")
    for index, group in enumerate(file.groups):
        path = f"groups[{index}]"
        if not group.name or names.index(group.name) != index:
            raise GroupsError(f"{path}.name: every group needs a name of its own")
        if not 0 <= group.min <= group.max <= _SIZE_MAX:
            raise GroupsError(
                f"{path}: 0 <= min <= max <= {_SIZE_MAX} must hold; min is {group.min}, max is "
                f"{group.max}"
            )
        if (group.template is None) == (not group.copy):
            raise GroupsError(
                f"{path}: write either template, a node, or copy, the name of a node of the trace"
            )
    return file


def autoscaling(file: AutoscalerFile, seed: int) -> Autoscaling:
    """Return the autoscaling of a run by a file whose groups have templates. Raises GroupsError."""
    flags = {name: _flag(value, f"flags.{name}") for name, value in file.flags.items()}
    price = file.pod_price
    interval_ns, pod_delay_ns = SCAN_INTERVAL_NS, 0
    if _SCAN_INTERVAL in flags:
        interval_ns = _duration_ns(flags[_SCAN_INTERVAL], f"flags.{_SCAN_INTERVAL}")
    if _POD_DELAY in flags:
        pod_delay_ns = _duration_ns(flags[_POD_DELAY], f"flags.{_POD_DELAY}", least=0)
    return Autoscaling(
        config=autoscaler_pb2.AutoscalerConfig(
            flags=flags,
            gpu_label=file.gpu_label,
            pod_price=price
            if price is None
            else autoscaler_pb2.PodPrice(core=price.core, gib=price.gib),
            priorities=file.priorities,
            seed=seed,
        ),
        groups=[_group(group, f"groups[{index}]") for index, group in enumerate(file.groups)],
        scan_interval_ns=interval_ns,
        pod_delay_ns=pod_delay_ns,
    )


def of_configuration(configuration: Mapping[str, Any], seed: int) -> Autoscaling | None:
    """Return the node groups of a run, from its manifest; None if it scaled none.

    Raises GroupsError.
    """
    text = configuration.get("autoscaler")
    return autoscaling(read(text), seed) if text else None


def _group(group: GroupFile, path: str) -> NodeGroup:
    delay = group.provisioning_delay
    return NodeGroup(
        name=group.name,
        min_size=group.min,
        max_size=group.max,
        template=_node(group.template, f"{path}.template"),
        labels=group.nodes.labels,
        names=frozenset(group.nodes.names),
        price=group.price,
        provisioning_ns=() if delay is None else _delays_ns(delay, f"{path}.provisioningDelay"),
        options={
            name: _flag(value, f"{path}.options.{name}") for name, value in group.options.items()
        },
    )


def _node(template: object, path: str) -> node_pb2.Node:
    if not isinstance(template, dict):
        raise GroupsError(f"{path}: must be a node, a mapping of its fields")
    try:
        return json_codec.parse(node_pb2.Node, template)
    except FieldError as error:
        raise GroupsError(f"{path}.{error}") from None


def _flag(value: object, path: str) -> str:
    """Return a flag's text; YAML's numbers and truth values are written as on a command line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise GroupsError(f"{path}: must be a text, a number, true or false")


def _duration_ns(text: str, path: str, least: int = 1) -> int:
    try:
        length_ns = duration_ns(text)
    except ValueError as error:
        raise GroupsError(f"{path}: {error}") from None
    if length_ns < least:
        raise GroupsError(f"{path}: must be more than 0s")
    return length_ns


def _delays_ns(value: object, path: str) -> tuple[int, ...]:
    """Return the durations of a list, or one by itself."""
    values = value if isinstance(value, list) else [value]
    texts = [text for text in values if isinstance(text, str)]
    if not texts or len(texts) < len(values):
        raise GroupsError(f'{path}: must be a duration such as "2m", or a list of durations')
    return tuple(_duration_ns(text, path, least=0) for text in texts)


def written(file: AutoscalerFile) -> str:
    """Return a file's text."""
    plain: dict[str, Any] = {}
    if file.flags:
        plain["flags"] = dict(file.flags)
    if file.gpu_label:
        plain["gpuLabel"] = file.gpu_label
    if file.pod_price is not None:
        plain["podPrice"] = {"core": file.pod_price.core, "gib": file.pod_price.gib}
    if file.priorities is not None:
        plain["priorities"] = file.priorities
    plain["groups"] = list(map(_plain_group, file.groups))
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=100)


def _plain_group(group: GroupFile) -> dict[str, Any]:
    plain: dict[str, Any] = {"name": group.name, "min": group.min, "max": group.max}
    nodes = {"labels": dict(group.nodes.labels), "names": list(group.nodes.names)}
    if any(nodes.values()):
        plain["nodes"] = {name: value for name, value in nodes.items() if value}
    optional = {
        "copy": group.copy or None,
        "price": group.price,
        "provisioningDelay": group.provisioning_delay,
        "options": dict(group.options) or None,
        "template": group.template,
    }
    return plain | {name: value for name, value in optional.items() if value is not None}
