"""The cloud and the cluster that a script of the autoscaler's vectors describes.

Objects are Kubernetes' JSON. What a script's operation or a call of the autoscaler's changes is
noted in `changes`, and the player sends it to the autoscaler. Nothing happens by itself except that
an evicted pod is gone when its grace period is over, unless it has finalizers.

A group has `initial` instances named NAME-0 and so on. An increase makes the next numbers, which
are being created until their node is added; in a group with late instances the cloud does not list
them before that. A decrease cancels those that are not listed, newest first, and never one that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from reprieve.kube.v1beta1 import policy_pb2
from services.kube.selector import LabelSelector
from services.rpc.kube import json_codec
from services.rpc.kube.codec import budget_from_message

Json = dict[str, Any]
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
"""When a script begins; upstream's clock has a date, too, and no creation time is zero."""
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"
DELETION_CANDIDATE = "DeletionCandidateOfClusterAutoscaler"
_STAYING = {NOT_READY["key"], TO_BE_DELETED, DELETION_CANDIDATE}


def time_text(at_ms: int) -> str:
    """Return a script's time as Kubernetes writes it, with milliseconds."""
    moment = BEGIN + timedelta(milliseconds=at_ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03}Z"


@dataclass(frozen=True, slots=True)
class ScriptedChange:
    """An object that was added or has changed; `plain` None: it was removed."""

    kind: str
    key: str
    plain: Json | None


@dataclass(slots=True)
class ScriptedInstance:
    """An instance; its node may have been added, or not yet."""

    is_running: bool
    is_listed: bool
    error: tuple[str, str] = ("", "")


@dataclass(slots=True)
class ScriptedGroup:
    """A node group; `instances` by name in the order of their numbers."""

    plain: Json
    least: int
    most: int
    target: int
    number: int
    instances: dict[str, ScriptedInstance]
    fails: bool = False

    @staticmethod
    def of(plain: Json) -> ScriptedGroup:
        """Return a group of a vector's configuration, all of whose instances run."""
        initial = plain["initial"]
        names = [f"{plain['name']}-{number}" for number in range(initial)]
        instances = {name: ScriptedInstance(is_running=True, is_listed=True) for name in names}
        return ScriptedGroup(plain, plain["min"], plain["max"], initial, initial, instances)

    @property
    def name(self) -> str:
        """Return the group's name."""
        return str(self.plain["name"])

    @property
    def listed(self) -> int:
        """Return the number of instances that the cloud lists."""
        return sum(instance.is_listed for instance in self.instances.values())

    def state(self) -> Json:
        """Return the group as the cloud shows it."""
        return {
            "name": self.name,
            "min": self.least,
            "max": self.most,
            "target": self.target,
            "instances": [
                {
                    "provider_id": provider_id(self.name, name),
                    "state": "Running" if instance.is_running else "Creating",
                    "error_class": instance.error[0],
                    "error_code": instance.error[1],
                }
                for name, instance in self.instances.items()
                if instance.is_listed
            ],
        }


def provider_id(group: str, name: str) -> str:
    """Return the ID by which the cloud knows an instance."""
    return f"test://{group}/{name}"


def name_of(provider_id_: str) -> str:
    """Return the name of an instance, which is its node's."""
    return provider_id_.rpartition("/")[2]


def pod_key(plain: Json) -> str:
    """Return namespace/name."""
    return f"{plain['metadata']['namespace']}/{plain['metadata']['name']}"


@dataclass(slots=True)
class ScriptedCluster:
    """All objects of a script, by kind and key, and the cloud's groups; see the module."""

    groups: dict[str, ScriptedGroup]
    objects: dict[str, dict[str, Json]] = field(default_factory=dict)
    changes: list[ScriptedChange] = field(default_factory=list)
    leaving: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def of(config: Json) -> ScriptedCluster:
        """Return the cluster at the beginning, with groups and no objects."""
        groups = {plain["name"]: ScriptedGroup.of(plain) for plain in config["groups"]}
        cluster = ScriptedCluster(groups)
        for name in groups:
            cluster._changed_group(name)
        return cluster

    def take_changes(self) -> list[ScriptedChange]:
        """Return the changes since the last time that this was called."""
        changes, self.changes = self.changes, []
        return changes

    def of_kind(self, kind: str) -> Mapping[str, Json]:
        """Return the objects of a kind by key."""
        return self.objects.get(kind, {})

    def next_due_ms(self) -> int | None:
        """Return when the next evicted pod will be removed."""
        return min(self.leaving.values(), default=None)

    def let_go(self, at_ms: int) -> None:
        """Remove the evicted pods whose grace period is over."""
        for key in sorted(key for key, due_ms in self.leaving.items() if due_ms <= at_ms):
            self._remove("Pod", key)

    def play(self, op: Json) -> None:
        """Carry out an operation of the script; on a removed object it does nothing."""
        getattr(self, f"_play_{op['op']}")(op)

    def call(self, call: Json, at_ms: int) -> str:
        """Carry out a call of the autoscaler's, and return why it is refused, "" if it is not."""
        refusal: str = getattr(self, f"_call_{call['call']}")(call, at_ms)
        return refusal

    # Operations of the script.

    def _play_node_add(self, op: Json) -> None:
        group = self.groups.get(op.get("group", ""))
        template = op["node"] if group is None or "node" in op else group.plain["template"]
        plain: Json = deepcopy(template)
        meta = plain.setdefault("metadata", {})
        name = meta["name"] = op.get("name") or meta["name"]
        if group is not None:
            instance = group.instances.get(name)
            if instance is None:
                return
            instance.is_running = instance.is_listed = True
            plain.setdefault("spec", {})["providerID"] = provider_id(group.name, name)
            self._changed_group(group.name)
        since_ms = op["created_ms"] if "created_ms" in op else op["at_ms"]
        meta["creationTimestamp"] = time_text(since_ms)
        meta.setdefault("labels", {})["kubernetes.io/hostname"] = name
        _set_ready(plain, op.get("ready", True), since_ms)
        self._put("Node", name, plain)

    def _play_node_ready(self, op: Json) -> None:
        plain = self._copy("Node", op["name"])
        if plain is not None:
            _set_ready(plain, op["ready"], op["at_ms"])
            self._put("Node", op["name"], plain)

    def _play_node_remove(self, op: Json) -> None:
        self._remove_node(op["name"])

    def _play_node_set(self, op: Json) -> None:
        plain = self._copy("Node", op["name"])
        if plain is None:
            return
        spec = plain.setdefault("spec", {})
        if "taints" in op:
            kept = [taint for taint in spec.get("taints", ()) if taint["key"] in _STAYING]
            spec["taints"] = [*kept, *(op["taints"] or ())]
        if "annotations" in op:
            plain["metadata"]["annotations"] = op["annotations"] or {}
        if "unschedulable" in op:
            spec["unschedulable"] = op["unschedulable"]
        self._put("Node", op["name"], plain)

    def _play_pod_add(self, op: Json) -> None:
        plain = deepcopy(op["pod"])
        node_name = plain["spec"].get("nodeName")
        if node_name and node_name not in self.of_kind("Node"):
            return
        created_ms = op["created_ms"] if "created_ms" in op else op["at_ms"]
        key = pod_key(plain)
        plain["metadata"] |= {"uid": key, "creationTimestamp": time_text(created_ms)}
        if node_name:
            plain.setdefault("status", {}).setdefault("phase", "Running")
        self._put("Pod", key, plain)

    def _play_pod_remove(self, op: Json) -> None:
        self._remove("Pod", op["key"])

    def _play_pod_bind(self, op: Json) -> None:
        plain = self._copy("Pod", op["key"])
        if plain is None or plain["spec"].get("nodeName") or op["on"] not in self.of_kind("Node"):
            return
        plain["spec"]["nodeName"] = op["on"]
        status = plain.setdefault("status", {})
        status["phase"] = "Running"
        status["conditions"] = [{"type": "PodScheduled", "status": "True"}]
        self._put("Pod", op["key"], plain)

    def _play_pod_unschedulable(self, op: Json) -> None:
        plain = self._copy("Pod", op["key"])
        if plain is None or plain["spec"].get("nodeName"):
            return
        refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        plain.setdefault("status", {})["conditions"] = [refused]
        self._put("Pod", op["key"], plain)

    def _play_pod_nominate(self, op: Json) -> None:
        plain = self._copy("Pod", op["key"])
        if plain is not None:
            plain.setdefault("status", {})["nominatedNodeName"] = op["on"]
            self._put("Pod", op["key"], plain)

    def _play_pdb_set(self, op: Json) -> None:
        self._put("PodDisruptionBudget", pod_key(op["pdb"]), deepcopy(op["pdb"]))

    def _play_pdb_allowed(self, op: Json) -> None:
        self._set_allowed(op["key"], op["value"])

    def _play_daemonset_add(self, op: Json) -> None:
        self._put("DaemonSet", pod_key(op["daemonset"]), deepcopy(op["daemonset"]))

    def _play_controller(self, op: Json) -> None:
        namespace, _, name = op["key"].partition("/")
        count = op["value"]
        meta = {"namespace": namespace, "name": name, "uid": op["uid"]}
        spec, status = {"replicas": count}, {"replicas": count}
        if op["kind"] == "Job":
            spec, status = {"parallelism": count}, {"active": count}
        elif op["kind"] == "StatefulSet":
            status["currentReplicas"] = count
        self._put(op["kind"], op["key"], {"metadata": meta, "spec": spec, "status": status})

    def _play_group_set(self, op: Json) -> None:
        group = self.groups[op["group"]]
        group.least, group.most = op.get("min", group.least), op.get("max", group.most)
        group.fails = op.get("fail", group.fails)
        self._changed_group(group.name)

    def _play_instance_error(self, op: Json) -> None:
        group = self.groups[op["group"]]
        instance = group.instances.get(op["name"])
        if instance is not None:
            instance.error = op["class"], op["code"]
            self._changed_group(group.name)

    def _play_instance_remove(self, op: Json) -> None:
        if self.groups[op["group"]].instances.pop(op["name"], None) is not None:
            self._changed_group(op["group"])
            self._remove_node(op["name"])

    # Calls of the autoscaler.

    def _call_increase_size(self, call: Json, _at_ms: int) -> str:
        group, delta = self.groups[call["group"]], call["delta"]
        if group.fails:
            return "the cloud fails"
        if group.target + delta > group.most:
            return f"{group.target} + {delta} is above the maximum of {group.most}"
        late = group.plain.get("late_instances", False)
        for number in range(group.number, group.number + delta):
            made = ScriptedInstance(is_running=False, is_listed=not late)
            group.instances[f"{group.name}-{number}"] = made
        group.number += delta
        group.target += delta
        self._changed_group(group.name)
        return ""

    def _call_decrease_target_size(self, call: Json, _at_ms: int) -> str:
        group, delta = self.groups[call["group"]], -call["delta"]
        if group.target - delta < group.listed:
            return f"{group.target} - {delta} is below the {group.listed} instances"
        unlisted = [name for name, instance in group.instances.items() if not instance.is_listed]
        for name in unlisted[max(len(unlisted) - delta, 0) :]:
            del group.instances[name]
        group.target -= delta
        self._changed_group(group.name)
        return ""

    def _call_delete_nodes(self, call: Json, _at_ms: int) -> str:
        group = self.groups[call["group"]]
        if group.target <= group.least and not call.get("force"):
            return f"{group.target} is the minimum"
        for name in call["nodes"]:
            group.target -= group.instances.pop(name, None) is not None
            self._remove_node(name)
        self._changed_group(group.name)
        return ""

    def _call_evict(self, call: Json, at_ms: int) -> str:
        key, grace_ms = call["pod"], call["grace_s"] * 1000
        plain = self._copy("Pod", key)
        if plain is None:
            return GONE
        budgets = list(self._budgets_of(plain))
        if any(allowed <= 0 for _, allowed in budgets):
            return "a disruption budget allows no disruption"
        for budget, allowed in budgets:
            self._set_allowed(budget, allowed - 1)
        plain["metadata"]["deletionTimestamp"] = time_text(at_ms + grace_ms)
        if grace_ms == 0 and not plain["metadata"].get("finalizers"):
            self._remove("Pod", key)
            return ""
        self._put("Pod", key, plain)
        if not plain["metadata"].get("finalizers"):
            self.leaving[key] = at_ms + grace_ms
        return ""

    def _call_mark_node(self, call: Json, _at_ms: int) -> str:
        plain = self._copy("Node", call["node"])
        if plain is None:
            return GONE
        taints = plain.setdefault("spec", {}).setdefault("taints", [])
        if all(taint["key"] != call["taint"]["key"] for taint in taints):
            taints.append(call["taint"])
            if call["cordon"]:
                plain["spec"]["unschedulable"] = True
            self._put("Node", call["node"], plain)
        return ""

    def _call_unmark_node(self, call: Json, _at_ms: int) -> str:
        plain = self._copy("Node", call["node"])
        if plain is None:
            return GONE
        taints = plain.setdefault("spec", {}).setdefault("taints", [])
        kept = [taint for taint in taints if taint["key"] != call["taint_key"]]
        if len(kept) < len(taints):
            plain["spec"]["taints"] = kept
            if call["uncordon"]:
                plain["spec"]["unschedulable"] = False
            self._put("Node", call["node"], plain)
        return ""

    # The objects.

    def nodes_with(self, taint_key: str) -> list[str]:
        """Return the names of the nodes that have a taint of that key."""
        return sorted(
            name
            for name, plain in self.of_kind("Node").items()
            if any(taint["key"] == taint_key for taint in plain["spec"].get("taints", ()))
        )

    def _budgets_of(self, pod: Json) -> Iterator[tuple[str, int]]:
        labels = pod["metadata"].get("labels", {})
        for key, plain in self.of_kind("PodDisruptionBudget").items():
            selector = _selector(plain)
            same = plain["metadata"]["namespace"] == pod["metadata"]["namespace"]
            if same and selector is not None and selector.matches(labels):
                yield key, plain.get("status", {}).get("disruptionsAllowed", 0)

    def _set_allowed(self, key: str, allowed: int) -> None:
        plain = self._copy("PodDisruptionBudget", key)
        if plain is not None:
            plain.setdefault("status", {})["disruptionsAllowed"] = allowed
            self._put("PodDisruptionBudget", key, plain)

    def _copy(self, kind: str, key: str) -> Json | None:
        return deepcopy(self.of_kind(kind).get(key))

    def _put(self, kind: str, key: str, plain: Json) -> None:
        self.objects.setdefault(kind, {})[key] = plain
        self.changes.append(ScriptedChange(kind, key, plain))

    def _remove(self, kind: str, key: str) -> None:
        self.leaving.pop(key, None)
        if self.objects.get(kind, {}).pop(key, None) is not None:
            self.changes.append(ScriptedChange(kind, key, None))

    def _remove_node(self, name: str) -> None:
        self._remove("Node", name)
        pods = self.of_kind("Pod").items()
        for key in [key for key, plain in pods if plain["spec"].get("nodeName") == name]:
            self._remove("Pod", key)

    def _changed_group(self, name: str) -> None:
        self.changes.append(ScriptedChange("NodeGroup", name, self.groups[name].state()))


GONE = "not found"
"""Why a call on an object that is gone is refused."""


def _selector(budget: Json) -> LabelSelector | None:
    return budget_from_message(json_codec.parse(policy_pb2.PodDisruptionBudget, budget)).selector


def _set_ready(node: Json, is_ready: bool, since_ms: int) -> None:
    condition = {
        "type": "Ready",
        "status": "True" if is_ready else "False",
        "lastTransitionTime": time_text(since_ms),
    }
    status, spec = node.setdefault("status", {}), node.setdefault("spec", {})
    status["conditions"] = [*_others(status.get("conditions", ()), "type", "Ready"), condition]
    taints = _others(spec.get("taints", ()), "key", str(NOT_READY["key"]))
    spec["taints"] = taints if is_ready else [*taints, NOT_READY]


def _others(items: Iterable[Json], field_name: str, value: str) -> list[Json]:
    return [item for item in items if item[field_name] != value]
