"""Whether a pod fits a node, by rules 10 to 25, of which one can be broken."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from reprieve.kube.v1beta1 import affinity_pb2, node_pb2, pod_pb2
from tests.conformance_mutants.scheduler_rules import Breach, Difference

Amounts = dict[str, Fraction]
DECIMAL: Mapping[str, int] = {letter: 10 ** (3 * power) for power, letter in enumerate("kmgtpe", 1)}
SUFFIXES: Mapping[str, int] = {
    **{f"{letter}i": 1 << (10 * power) for power, letter in enumerate("KMGTPE", 1)},
    **{letter: 10 ** (3 * power) for power, letter in enumerate("kMGTPE", 1)},
}
"""The binary suffixes come first: the decimal ones are their beginnings."""
WHOLE = ("cpu", "memory")
UNSCHEDULABLE = node_pb2.Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


class Refusal(NamedTuple):
    """Why a node does not fit: reasons of a plugin, and whether deleting pods may help."""

    plugin: str
    reasons: Sequence[str]
    helps: bool


@dataclass(frozen=True, slots=True)
class PodOnNode:
    """A pod of a node, with what it requests."""

    pod: pod_pb2.Pod
    requests: Amounts = field(default_factory=dict)


class Fit:
    """The filters; `difference` is what they do in another way."""

    def __init__(self, difference: Difference | None) -> None:
        self._difference = difference

    def breaks(self, *breaches: Breach) -> bool:
        """Return whether one of these rules is broken."""
        return self._difference in breaches

    # Amounts

    def quantity(self, text: str) -> Fraction:
        """Return a quantity's value."""
        if text.endswith("m"):
            return Fraction(text[:-1]) / (1 if self.breaks(Breach.READS_NO_MILLI) else 1000)
        if self.breaks(Breach.READS_NO_FRACTION) and "." in text:
            text = text.partition(".")[0]
        for suffix, factor in SUFFIXES.items():
            if text.endswith(suffix):
                number = Fraction(text.removesuffix(suffix))
                is_decimal = self.breaks(Breach.READS_BINARY_AS_DECIMAL)
                return number * (DECIMAL[suffix[0].lower()] if is_decimal else factor)
        if self.breaks(Breach.READS_NO_EXPONENT):
            text = text.partition("e")[0]
        return Fraction(text)

    def _amounts(self, quantities: Mapping[str, str]) -> Amounts:
        return {name: self.quantity(text) for name, text in quantities.items()}

    def _asked(self, container: pod_pb2.Container) -> Amounts:
        return self._amounts(container.resources.requests)

    def requests(self, pod: pod_pb2.Pod) -> Amounts:
        """Return what a pod requests of a node."""
        spec = pod.spec
        containers = (
            spec.containers[:1] if self.breaks(Breach.COUNTS_ONE_CONTAINER) else spec.containers
        )
        total = _sum(map(self._asked, containers))
        total = self._with_init(total, spec.init_containers)
        whole = self._amounts(spec.resources.requests)
        if not self.breaks(Breach.IGNORES_POD_LEVEL):
            total = whole if whole and self.breaks(Breach.POD_LEVEL_IS_ALL) else {**total, **whole}
        if self.breaks(Breach.IGNORES_OVERHEAD):
            return total
        if whole and self.breaks(Breach.POD_LEVEL_HAS_OVERHEAD):
            return total
        return _sum([total, self._amounts(spec.overhead)])

    def _with_init(self, total: Amounts, init: Iterable[pod_pb2.Container]) -> Amounts:
        """Return the larger of what runs together, and of each moment of the start."""
        if self.breaks(Breach.IGNORES_INIT):
            init = [container for container in init if container.restart_policy == "Always"]
        asked = [(self._is_sidecar(container), self._asked(container)) for container in init]
        sidecars = _sum(amounts for is_sidecar, amounts in asked if is_sidecar)
        others = [amounts for is_sidecar, amounts in asked if not is_sidecar]
        running = _sum([total, sidecars])
        if self.breaks(Breach.ADDS_INIT):
            return _sum([running, *others])
        if self.breaks(Breach.ADDS_INIT_TOGETHER):
            return _largest([running, _sum([*others, sidecars])])
        started: Amounts = sidecars if self.breaks(Breach.SIDECARS_START_FIRST) else {}
        moments = [running]
        for is_sidecar, amounts in asked:
            if self.breaks(Breach.SIDECARS_START_FIRST):
                moments.append(started if is_sidecar else _sum([started, amounts]))
                continue
            moments.append(_sum([started, amounts]))
            if is_sidecar and not self.breaks(Breach.SIDECARS_START_LAST):
                started = moments[-1]
        return _largest(moments)

    def _is_sidecar(self, container: pod_pb2.Container) -> bool:
        return container.restart_policy == "Always" and not self.breaks(Breach.SIDECARS_END)

    def room(self, node: node_pb2.Node) -> Amounts:
        """Return what pods can use of a node."""
        status = node.status
        if self.breaks(Breach.READS_CAPACITY):
            return self._amounts(status.capacity)
        if status.allocatable or self.breaks(Breach.WANTS_ALLOCATABLE):
            return self._amounts(status.allocatable)
        return self._amounts(status.capacity)

    # Filters, in upstream's order

    def refusal(
        self, pod: PodOnNode, node: node_pb2.Node, others: Sequence[PodOnNode]
    ) -> Refusal | None:
        """Return why a node with those pods does not fit another one; None: it fits."""
        for plugin, helps, reasons in (
            ("NodeUnschedulable", False, self._cordon(pod.pod, node)),
            ("TaintToleration", False, self._taints(pod.pod, node)),
            ("NodeAffinity", False, self._affinity(pod.pod, node)),
            ("NodePorts", True, self._ports(pod.pod, others)),
            ("NodeResourcesFit", True, self._resources(pod, node, others)),
        ):
            if listed := list(reasons):
                return Refusal(plugin, listed, helps)
        return None

    def _cordon(self, pod: pod_pb2.Pod, node: node_pb2.Node) -> Iterator[str]:
        if not node.spec.unschedulable or self.breaks(Breach.IGNORES_CORDON):
            return
        tolerates = self._tolerates(pod, UNSCHEDULABLE)
        if not tolerates or self.breaks(Breach.CORDON_IS_TOLERATED_BY_NONE):
            yield "node(s) were unschedulable"

    def _taints(self, pod: pod_pb2.Pod, node: node_pb2.Node) -> Iterator[str]:
        effects = {"NoSchedule", "NoExecute"}
        if self.breaks(Breach.IGNORES_TAINTS):
            effects.clear()
        if self.breaks(Breach.IGNORES_NO_EXECUTE):
            effects.discard("NoExecute")
        if self.breaks(Breach.AVOIDS_PREFERRED_TAINTS):
            effects.add("PreferNoSchedule")
        taints = [taint for taint in node.spec.taints if taint.effect in effects]
        untolerated = [taint for taint in taints if not self._tolerates(pod, taint)]
        if self.breaks(Breach.TOLERATES_ALL_BY_ONE) and len(untolerated) < len(taints):
            return
        for taint in untolerated[:1]:
            yield f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"

    def _tolerates(self, pod: pod_pb2.Pod, taint: node_pb2.Taint) -> bool:
        return any(self._covers(toleration, taint) for toleration in pod.spec.tolerations)

    def _covers(self, toleration: pod_pb2.Toleration, taint: node_pb2.Taint) -> bool:
        effect, key = toleration.effect, toleration.key
        if not effect and self.breaks(Breach.WANTS_TOLERATION_EFFECT):
            return False
        if effect not in {"", taint.effect} and not self.breaks(Breach.IGNORES_TOLERATION_EFFECT):
            return False
        if not key and self.breaks(Breach.WANTS_TOLERATION_KEY):
            return False
        if key not in {"", taint.key} and not self.breaks(Breach.IGNORES_TOLERATION_KEY):
            return False
        exists = toleration.operator == "Exists"
        if exists and not self.breaks(Breach.IGNORES_TOLERATION_OPERATOR):
            return True
        return toleration.value == taint.value or self.breaks(Breach.IGNORES_TOLERATION_VALUE)

    def _affinity(self, pod: pod_pb2.Pod, node: node_pb2.Node) -> Iterator[str]:
        if not (self._matches_selector(pod, node) and self._matches_affinity(pod, node)):
            yield "node(s) didn't match Pod's node affinity/selector"

    def _matches_selector(self, pod: pod_pb2.Pod, node: node_pb2.Node) -> bool:
        labels, selector = dict(node.metadata.labels), dict(pod.spec.node_selector)
        if self.breaks(Breach.IGNORES_SELECTOR):
            return True
        has_affinity = pod.spec.HasField("affinity")
        if has_affinity and self.breaks(Breach.AFFINITY_REPLACES_SELECTOR):
            return True
        if self.breaks(Breach.SELECTS_ABSENT_LABELS):
            return all(labels.get(key, "") == value for key, value in selector.items())
        matches = [labels.get(key) == value for key, value in selector.items()]
        if self.breaks(Breach.SELECTS_BY_ONE_LABEL) and matches:
            return any(matches)
        return all(matches)

    def _matches_affinity(self, pod: pod_pb2.Pod, node: node_pb2.Node) -> bool:
        affinity = pod.spec.affinity.node_affinity
        if self.breaks(Breach.IGNORES_AFFINITY):
            return True
        preferred = affinity.preferred_during_scheduling_ignored_during_execution
        if self.breaks(Breach.REQUIRES_PREFERRED) and preferred:
            return all(self._matches_term(term.preference, node) for term in preferred)
        if not affinity.HasField("required_during_scheduling_ignored_during_execution"):
            return True
        required = affinity.required_during_scheduling_ignored_during_execution
        matches = [self._matches_term(term, node) for term in required.node_selector_terms]
        return all(matches) if self.breaks(Breach.NEEDS_ALL_TERMS) else any(matches)

    def _matches_term(self, term: affinity_pb2.NodeSelectorTerm, node: node_pb2.Node) -> bool:
        labels = dict(node.metadata.labels)
        by_label = [self._meets(condition, labels) for condition in term.match_expressions]
        fields = {"metadata.name": node.metadata.name}
        by_field = [self._meets(condition, fields) for condition in term.match_fields]
        if self.breaks(Breach.IGNORES_FIELDS):
            return not term.match_expressions or all(by_label)
        if self.breaks(Breach.FIELDS_ARE_ENOUGH) and by_field:
            by_label = []
        conditions = by_label + by_field
        if not conditions:
            return self.breaks(Breach.EMPTY_TERM_MATCHES)
        return any(conditions) if self.breaks(Breach.NEEDS_ONE_CONDITION) else all(conditions)

    def _meets(
        self, condition: affinity_pb2.NodeSelectorRequirement, labels: Mapping[str, str]
    ) -> bool:
        value, operator = labels.get(condition.key), condition.operator
        if operator == "NotIn" and self.breaks(Breach.READS_NO_NOT_IN):
            operator = "In"
        match operator:
            case "In":
                return value in condition.values
            case "NotIn":
                lacks = value is None and self.breaks(Breach.NOT_IN_NEEDS_LABEL)
                return value not in condition.values and not lacks
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
        if value is None:
            return False
        (bound,) = condition.values
        if self.breaks(Breach.READS_NO_GT):
            return value > bound if operator == "Gt" else value < bound
        return int(value) > int(bound) if operator == "Gt" else int(value) < int(bound)

    def _ports(self, pod: pod_pb2.Pod, others: Sequence[PodOnNode]) -> Iterator[str]:
        if self.breaks(Breach.IGNORES_PORTS):
            return
        held = [port for other in others for port in self._host_ports(other.pod)]
        if any(self._conflict(port, other) for port in self._host_ports(pod) for other in held):
            yield "node(s) didn't have free ports for the requested pod ports"

    def _host_ports(self, pod: pod_pb2.Pod) -> list[tuple[str, str, int]]:
        listed = [port for container in pod.spec.containers for port in container.ports]
        if self.breaks(Breach.CONTAINER_PORTS_COUNT):
            return [
                (port.host_ip, port.protocol, port.host_port or port.container_port)
                for port in listed
            ]
        return [(port.host_ip, port.protocol, port.host_port) for port in listed if port.host_port]

    def _conflict(self, port: tuple[str, str, int], other: tuple[str, str, int]) -> bool:
        address, protocol, number = port
        if number != other[2]:
            return False
        if protocol != other[1] and not self.breaks(Breach.IGNORES_PROTOCOLS):
            return False
        if self.breaks(Breach.WILDCARD_IS_AN_ADDRESS):
            return address == other[0]
        return (
            address == other[0]
            or "" in {address, other[0]}
            or self.breaks(Breach.IGNORES_ADDRESSES)
        )

    def _resources(
        self, pod: PodOnNode, node: node_pb2.Node, others: Sequence[PodOnNode]
    ) -> Iterator[str]:
        room = self.room(node)
        if len(others) >= room.get("pods", 0) and not self.breaks(Breach.IGNORES_PODS):
            yield "Too many pods"
        used = _sum(other.requests for other in others)
        for name, amount in sorted(pod.requests.items()):
            if name != "cpu" and self.breaks(Breach.COUNTS_CPU_ALONE):
                continue
            if name not in WHOLE and self.breaks(Breach.IGNORES_EXTENDED):
                continue
            if name not in room and self.breaks(Breach.HAS_ABSENT_RESOURCES):
                continue
            if amount and amount > room.get(name, 0) - used.get(name, 0):
                yield f"Insufficient {name}"


def _sum(parts: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, Fraction(0)) + amount
    return total


def _largest(moments: Iterable[Amounts]) -> Amounts:
    largest: Amounts = {}
    for moment in moments:
        for name, amount in moment.items():
            largest[name] = max(amount, largest.get(name, amount))
    return largest
