"""Namespaces, services and controllers: whose labels select, and whose pods are spread by default.

Source: kubernetes v1.34 api/core/v1/types.go and api/apps/v1/types.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from services.kube.pod import EMPTY
from services.kube.selector import LabelSelector


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service; an empty `selector` leads to no pod."""

    namespace: str
    name: str
    selector: Mapping[str, str] = field(default_factory=lambda: EMPTY)


class ControllerKind(Enum):
    """The controllers whose selectors default spreading reads."""

    REPLICATION_CONTROLLER = "ReplicationController"
    REPLICA_SET = "ReplicaSet"
    STATEFUL_SET = "StatefulSet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """A controller of pods; `selector` None picks none."""

    kind: ControllerKind
    namespace: str
    name: str
    selector: LabelSelector | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """A namespace."""

    name: str
    labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)
