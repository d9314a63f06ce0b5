"""A session's fleet as JSON, for its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from services.eviction.core.local_storage import may_be_evicted
from services.eviction.core.manager import Manager
from services.eviction.core.pod import EvictionPod
from services.eviction.core.state import ManagerSnapshot
from services.eviction.fleet import ActivePod, Fleet, ManagedNode
from services.kube.kubelet import EvictionConfig
from services.kube.quantity import Format, Quantity
from services.typed import DataError, Reading, write


@dataclass(frozen=True, slots=True, kw_only=True)
class _SavedNode:
    """A ManagedNode; `pods` are in the node's order."""

    own: EvictionConfig | None
    state: ManagerSnapshot
    pods: tuple[EvictionPod, ...]
    at_ns: int
    kill_fails: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _SavedFleet:
    """A Fleet; `nodes` by name."""

    config: EvictionConfig
    live: bool
    nodes: Mapping[str, _SavedNode]


def fleet_to_json(fleet: Fleet) -> bytes:
    """Return the fleet as JSON."""
    nodes = {name: _saved_node(node) for name, node in fleet}
    saved = _SavedFleet(config=fleet.config, live=fleet.live, nodes=nodes)
    return write(saved, {Quantity: _quantity_to_row})


def fleet_from_plain(plain: object) -> Fleet:
    """Return the fleet in a checkpoint; `plain` is the parsed JSON.

    Raises ValueError if fleet_to_json did not write `plain`.
    """
    saved = Reading({Quantity: _quantity}).read(_SavedFleet, plain)
    fleet = Fleet(saved.config, live=saved.live)
    for name, node in saved.nodes.items():
        manager = Manager(node.own or saved.config)
        manager.restore(node.state)
        pods = {pod.uid: ActivePod(pod, may_be_evicted(pod)) for pod in node.pods}
        fleet.put(
            name,
            ManagedNode(
                manager=manager,
                own=node.own,
                pods=pods,
                at_ns=node.at_ns,
                kill_fails=node.kill_fails,
            ),
        )
    return fleet


def _saved_node(node: ManagedNode) -> _SavedNode:
    return _SavedNode(
        own=node.own,
        state=node.manager.snapshot(),
        pods=tuple(pod.pod for pod in node.pods.values()),
        at_ns=node.at_ns,
        kill_fails=node.kill_fails,
    )


def _quantity_to_row(quantity: Quantity) -> list[str]:
    # A count of 1e-9 units does not fit into the 64 bits of JSON's integers.
    return [str(quantity.nano), quantity.format.value]


def _quantity(plain: object) -> Quantity:
    match plain:
        case [str(nano), str(style)]:
            return _quantity_of(nano, style)
    raise DataError("", "must be the count of a quantity and its format")


@lru_cache(maxsize=65536)
def _quantity_of(nano: str, style: str) -> Quantity:
    return Quantity(int(nano), Format(style))
