"""The nodes and pods that are there right now, by the names that usage is told by."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from threading import Lock
from typing import Any

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodHere:
    """A pod that is there; `node` "" before it is bound."""

    uid: str
    node: str


class Roster:
    """Kept from what lists and watches bring; threads may ask at once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._nodes: dict[str, None] = {}
        self._pods: dict[tuple[str, str], PodHere] = {}

    def see(self, kind: str, raw: Raw, *, is_gone: bool) -> None:
        """Take an object of a list or a watch; kinds other than nodes and pods are passed over."""
        key = name_of(raw)
        with self._lock:
            if kind == "Node":
                self._see_node(key[1], is_gone=is_gone)
            elif kind == "Pod":
                self._see_pod(key, raw, is_gone=is_gone)

    def keep(self, kind: str, names: Set[tuple[str, str]]) -> None:
        """Forget the nodes or pods that a whole list, with these names, does not have."""
        with self._lock:
            if kind == "Node":
                self._nodes = {each: None for each in self._nodes if ("", each) in names}
            elif kind == "Pod":
                self._pods = {key: pod for key, pod in self._pods.items() if key in names}

    def nodes(self) -> list[str]:
        """Return the names of the nodes."""
        with self._lock:
            return list(self._nodes)

    def pod(self, namespace: str, name: str) -> PodHere | None:
        """Return the pod of that name, None where there is none."""
        with self._lock:
            return self._pods.get((namespace, name))

    def _see_node(self, name: str, *, is_gone: bool) -> None:
        if is_gone:
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = None

    def _see_pod(self, key: tuple[str, str], raw: Raw, *, is_gone: bool) -> None:
        uid = str((raw.get("metadata") or {}).get("uid") or "")
        known = self._pods.get(key)
        if is_gone:
            # Another one may have taken the name already.
            if known is not None and known.uid == uid:
                del self._pods[key]
            return
        node = str((raw.get("spec") or {}).get("nodeName") or "")
        self._pods[key] = PodHere(uid=uid, node=node)


def name_of(raw: Raw) -> tuple[str, str]:
    """Return an object's namespace ("" where it has none) and name."""
    own = raw.get("metadata") or {}
    return str(own.get("namespace") or ""), str(own.get("name") or "")
