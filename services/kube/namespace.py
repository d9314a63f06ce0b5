"""Namespaces: their labels, which namespace selectors read.

Source: kubernetes v1.34 api/core/v1/types.go, Namespace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.kube.pod import EMPTY


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """A namespace."""

    name: str
    labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)
