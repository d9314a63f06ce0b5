"""Nodes with equal taints, as one number: a toleration is tested once a class, not once a node."""

from __future__ import annotations

from collections.abc import Sequence

from services.kube.taints import Taint

Taints = tuple[Taint, ...]


class TaintClasses:
    """Numbers each sequence of taints that a node has had; 0 is none at all."""

    __slots__ = ("_classes", "_numbers")

    def __init__(self) -> None:
        self._numbers: dict[tuple[tuple[str, str, str], ...], int] = {(): 0}
        self._classes: list[Taints] = [()]

    def of(self, taints: Taints) -> int:
        """Return the number of the class of nodes with these taints."""
        key = tuple((taint.key, taint.value, taint.effect.value) for taint in taints)
        number = self._numbers.setdefault(key, len(self._classes))
        if number == len(self._classes):
            self._classes.append(taints)
        return number

    def all(self) -> Sequence[Taints]:
        """Return the taints of each class, by number."""
        return self._classes
