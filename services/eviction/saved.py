"""A session's fleet as plain values: what its checkpoint holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from services.eviction.core.config import EvictionConfig, Mode
from services.eviction.core.local_storage import may_be_evicted
from services.eviction.core.manager import Manager
from services.eviction.core.pod import EvictionContainer, EvictionPod, Resources, Volume
from services.eviction.fleet import Fleet, KnownPod, Node
from services.kube.quantity import Format, Quantity, parse
from services.kube.taints import TaintEffect, Toleration

Plain = dict[str, Any]


def fleet_to_plain(fleet: Fleet) -> Plain:
    """Return dicts, lists, strings, integers and booleans that stand for the fleet."""
    return {
        "config": _config_to_plain(fleet.config),
        "live": fleet.live,
        "nodes": {name: _node_to_plain(node) for name, node in fleet},
    }


def fleet_from_plain(plain: Plain) -> Fleet:
    """Return the fleet that `plain` stands for.

    Raises KeyError, TypeError or ValueError where `plain` is not what fleet_to_plain returns.
    """
    fleet = Fleet(_config_from_plain(plain["config"]), live=plain["live"])
    for name, node in plain["nodes"].items():
        fleet.put(name, _node_from_plain(node, fleet.config))
    return fleet


def _node_to_plain(node: Node) -> Plain:
    return {
        "own": None if node.own is None else _config_to_plain(node.own),
        "state": node.manager.snapshot(),
        "pods": [_pod_to_plain(each.pod) for each in node.pods.values()],
        "at_ns": node.at_ns,
        "kill_fails": node.kill_fails,
    }


def _node_from_plain(plain: Plain, shared: EvictionConfig) -> Node:
    own = None if plain["own"] is None else _config_from_plain(plain["own"])
    manager = Manager(own or shared)
    manager.restore(plain["state"])
    pods = [_pod_from_plain(each) for each in plain["pods"]]
    return Node(
        manager=manager,
        own=own,
        pods={pod.uid: KnownPod(pod, may_be_evicted(pod)) for pod in pods},
        at_ns=plain["at_ns"],
        kill_fails=plain["kill_fails"],
    )


def _config_to_plain(config: EvictionConfig) -> Plain:
    statements = ("hard", "soft", "soft_grace", "min_reclaim")
    return {
        "mode": config.mode.value,
        **{name: dict(getattr(config, name)) for name in statements},
        "enforce_node_allocatable": list(config.enforce_node_allocatable),
        "pressure_transition_ns": config.pressure_transition_ns,
        "max_pod_grace_s": config.max_pod_grace_s,
        "dedicated_imagefs": config.dedicated_imagefs,
        "split_containerfs": config.split_containerfs,
        "local_storage_isolation": config.local_storage_isolation,
        "allow_overwrite_tgps": config.allow_overwrite_tgps,
        "kernel_memcg_notification": config.kernel_memcg_notification,
    }


def _config_from_plain(plain: Plain) -> EvictionConfig:
    enforced = tuple(plain["enforce_node_allocatable"])
    fields = {**plain, "mode": Mode(plain["mode"]), "enforce_node_allocatable": enforced}
    return EvictionConfig(**fields)


def _pod_to_plain(pod: EvictionPod) -> Plain:
    return {
        "uid": pod.uid,
        "namespace": pod.namespace,
        "name": pod.name,
        "priority": pod.priority,
        "containers": [_container_to_plain(each) for each in pod.containers],
        "init_containers": [_container_to_plain(each) for each in pod.init_containers],
        "overhead": _resources_to_plain(pod.overhead),
        "volumes": [_volume_to_plain(each) for each in pod.volumes],
        "annotations": dict(pod.annotations),
        "termination_grace_s": pod.termination_grace_s,
        "qos_class": pod.qos_class,
        "tolerations": [_toleration_to_plain(each) for each in pod.tolerations],
    }


def _pod_from_plain(plain: Plain) -> EvictionPod:
    fields = {
        **plain,
        "containers": tuple(map(_container_from_plain, plain["containers"])),
        "init_containers": tuple(map(_container_from_plain, plain["init_containers"])),
        "overhead": _resources_from_plain(plain["overhead"]),
        "volumes": tuple(map(_volume_from_plain, plain["volumes"])),
        "tolerations": tuple(map(_toleration_from_plain, plain["tolerations"])),
    }
    return EvictionPod(**fields)


def _container_to_plain(container: EvictionContainer) -> Plain:
    return {
        "name": container.name,
        "requests": _resources_to_plain(container.requests),
        "limits": _resources_to_plain(container.limits),
        "restart_policy": container.restart_policy,
    }


def _container_from_plain(plain: Plain) -> EvictionContainer:
    requests, limits = plain["requests"], plain["limits"]
    fields = {
        **plain,
        "requests": _resources_from_plain(requests),
        "limits": _resources_from_plain(limits),
    }
    return EvictionContainer(**fields)


def _volume_to_plain(volume: Volume) -> Plain:
    size = None if volume.size_limit is None else _quantity_to_plain(volume.size_limit)
    return {"name": volume.name, "kind": volume.kind, "medium": volume.medium, "size_limit": size}


def _volume_from_plain(plain: Plain) -> Volume:
    size = plain["size_limit"]
    fields = {**plain, "size_limit": None if size is None else _quantity_from_plain(size)}
    return Volume(**fields)


def _toleration_to_plain(toleration: Toleration) -> Plain:
    effect = toleration.effect
    return {**asdict(toleration), "effect": None if effect is None else effect.value}


def _toleration_from_plain(plain: Plain) -> Toleration:
    effect = plain["effect"]
    fields = {**plain, "effect": None if effect is None else TaintEffect(effect)}
    return Toleration(**fields)


def _resources_to_plain(resources: Resources) -> Mapping[str, list[str]]:
    return {name: _quantity_to_plain(each) for name, each in resources.items()}


def _resources_from_plain(plain: Mapping[str, list[str]]) -> Resources:
    return {name: _quantity_from_plain(each) for name, each in plain.items()}


def _quantity_to_plain(quantity: Quantity) -> list[str]:
    # A count of 1e-9 units does not fit into the 64 bits that JSON's readers promise, and the
    # text alone does not keep the format of a zero.
    return [str(quantity), quantity.format.value]


def _quantity_from_plain(plain: list[str]) -> Quantity:
    text, style = plain
    return Quantity(parse(text).nano, Format(style))
