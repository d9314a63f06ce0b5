"""The nodes and pods of a test case, and the object templates beside its config file.

Object templates use a small part of Go's text/template: actions are fields (`{{.Index}}`), numbers,
strings and calls of upstream's arithmetic functions, nested with parentheses
(`{{Mod (AddInt .Index 1) 3}}`). Other actions (conditions, loops, pipelines) are refused: without
them the objects would differ from upstream's.

Source: kubernetes v1.36 test/integration/scheduler_perf, executor.go (getNodePreparer,
getPodStrategy, getCustomVolumeFactory), node_util.go (PrepareNodes), runners.go (the strategies,
MakePodSpec, CreatePodWithPersistentVolume) and operations.go (getTemplateFuncs);
pkg/apis/core/v1/defaults.go (SetDefaults_NodeStatus: allocatable is capacity where it is absent).
"""

from __future__ import annotations

import copy
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from replay import bounds
from replay.errors import TraceError
from replay.hashing import object_uid
from replay.importers.kubernetes.perf_workload import Operation
from replay.kube.kinds import is_carried, read_object, to_object
from reprieve.kube.v1beta1.meta_pb2 import ObjectMeta
from reprieve.kube.v1beta1.node_pb2 import Node
from reprieve.kube.v1beta1.object_pb2 import KubernetesObject
from reprieve.kube.v1beta1.pod_pb2 import Container, Pod
from services.rpc.errors import FieldError

_HOSTNAME = "kubernetes.io/hostname"
_MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"
_KIND_NAMES = {
    "namespace": "namespace",
    "node": "node",
    "pod": "pod",
    "persistent_volume": "volume",
    "persistent_volume_claim": "claim",
}
Raw = Mapping[str, Any]


def operation_nodes(
    operation: Operation, files: ObjectTemplates, names: NameGenerator
) -> Iterator[KubernetesObject]:
    """Yield the operation's nodes, each followed by its CSINode if it has one."""
    count, template = operation.count(), operation.text("nodeTemplatePath")
    for index in range(count):
        if template:
            made = files.make_a("node", template, operation.template_values(index, count))
        else:
            made = KubernetesObject(node=_base(f"node-{operation.index}-"))
        _prepare(operation, made.node, names, index)
        yield made
        if (csi_node := _csi_node(operation, made.node)) is not None:
            yield csi_node


def set_node_defaults(node: Node) -> None:
    """Set the node's UID, and its allocatable where it is absent."""
    node.metadata.uid = object_uid("Node", "", node.metadata.name)
    if not node.status.allocatable:
        node.status.allocatable.update(node.status.capacity)


def _base(prefix: str) -> Node:
    node = Node()
    node.metadata.generate_name = prefix
    node.status.capacity.update({"pods": "110", "cpu": "4", "memory": "32Gi"})
    node.status.conditions.add(type="Ready", status="True")
    return node


def _prepare(operation: Operation, node: Node, names: NameGenerator, index: int) -> None:
    names.name(node.metadata, "Node")
    set_node_defaults(node)
    node.metadata.labels[_HOSTNAME] = node.metadata.name
    labels = operation.mapping("labelNodePrepareStrategy")
    values = labels.get("labelValues")
    if isinstance(values, list) and values:
        node.metadata.labels[str(labels.get("labelKey"))] = str(values[index % len(values)])
    if key := operation.mapping("uniqueNodeLabelStrategy").get("labelKey"):
        node.metadata.labels[str(key)] = object_uid("label", str(key), node.metadata.name)
    amounts = operation.mapping("nodeAllocatableStrategy").get("nodeAllocatable")
    for resource, amount in (amounts if isinstance(amounts, dict) else {}).items():
        node.status.allocatable[str(resource)] = str(amount)


def _csi_node(operation: Operation, node: Node) -> KubernetesObject | None:
    """Return the node's CSINode with its volume limits; None without nodeAllocatableStrategy."""
    strategy = operation.mapping("nodeAllocatableStrategy")
    if not strategy:
        return None
    drivers, migrated = strategy.get("csiNodeAllocatable"), strategy.get("migratedPlugins")
    migrated = migrated if isinstance(migrated, list) else []
    raw = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {
            "name": node.metadata.name,
            "uid": object_uid("CSINode", "", node.metadata.name),
            "annotations": {_MIGRATED: ",".join(map(str, migrated))},
        },
        "spec": {
            "drivers": [
                {"name": name, "nodeID": node.metadata.name, "allocatable": allocatable}
                for name, allocatable in (drivers if isinstance(drivers, dict) else {}).items()
            ]
        },
    }
    try:
        return to_object(raw)
    except FieldError as error:
        raise TraceError(operation.where, f"csiNodeAllocatable: {error}") from error


def operation_pods(
    operation: Operation,
    template: str,
    namespace: str,
    files: ObjectTemplates,
    names: NameGenerator,
) -> Iterator[tuple[tuple[KubernetesObject, ...], Pod]]:
    """Yield each of the operation's pods, after the objects that are created before it.

    `template` "" is upstream's default pod.
    """
    count = operation.count()
    claim = operation.text("persistentVolumeClaimTemplatePath")
    volume = operation.text("persistentVolumeTemplatePath")
    for index in range(count):
        if template:
            pod = files.make_a("pod", template, operation.template_values(index, count)).pod
        else:
            pod = _base_pod()
        pod.metadata.namespace = namespace
        before: tuple[KubernetesObject, ...] = ()
        if claim:
            before = _bound_volume(files, claim, volume, namespace, index)
            del pod.spec.volumes[:]
            source = pod.spec.volumes.add(name="vol").persistent_volume_claim
            source.claim_name = f"pvc-{index}"
        names.name(pod.metadata, "Pod")
        pod.metadata.uid = object_uid("Pod", namespace, pod.metadata.name)
        yield before, pod


def _base_pod() -> Pod:
    pod = Pod()
    pod.metadata.generate_name = "pod-"
    container = Container(name="pause", image="registry.k8s.io/pause:3.10.1")
    container.ports.add(container_port=80)
    amounts = {"cpu": "100m", "memory": "500Mi"}
    container.resources.requests.update(amounts)
    container.resources.limits.update(amounts)
    pod.spec.containers.append(container)
    return pod


def _bound_volume(
    files: ObjectTemplates, claim_template: str, volume_template: str, namespace: str, index: int
) -> tuple[KubernetesObject, KubernetesObject]:
    claim = files.make_a("persistent_volume_claim", claim_template, {})
    volume = files.make_a("persistent_volume", volume_template, {})
    pv, pvc = volume.persistent_volume, claim.persistent_volume_claim
    pv.metadata.name = f"{namespace}-vol-{index}"
    pv.metadata.uid = object_uid("PersistentVolume", "", pv.metadata.name)
    pvc.metadata.name, pvc.metadata.namespace = f"pvc-{index}", namespace
    pvc.metadata.uid = object_uid("PersistentVolumeClaim", namespace, pvc.metadata.name)
    if pv.spec.HasField("csi"):
        pv.spec.csi.volume_handle = pv.metadata.name
    if pv.spec.HasField("aws_elastic_block_store"):
        pv.spec.aws_elastic_block_store.volume_id = f"vol-{index}"
    pv.spec.claim_ref.namespace, pv.spec.claim_ref.name = namespace, pvc.metadata.name
    pvc.spec.volume_name = pv.metadata.name
    pv.status.phase, pvc.status.phase = "Bound", "Bound"
    return claim, volume


class ObjectTemplates:
    """Reads templates, each once; paths are relative to `folder`, the config file's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._texts: dict[str, str] = {}
        self._objects: dict[str, KubernetesObject | None] = {}

    def path(self, name: str) -> Path:
        """Return the path of a template."""
        return self._folder / name

    def kind(self, name: str, values: Raw) -> str:
        """Return the template's apiVersion and kind. Raises TraceError."""
        raw = self._raw(name, values)
        return f"{raw.get('apiVersion')} {raw.get('kind')}"

    def make(self, name: str, values: Raw) -> KubernetesObject | None:
        """Return a new object of the template; None for a kind that a trace does not carry.

        Its actions read `values`. Raises TraceError if it cannot be read.
        """
        if is_template(self._text(name)):
            return self._made(name, values)
        if name not in self._objects:
            self._objects[name] = self._made(name, values)
        return copy.deepcopy(self._objects[name])

    def make_a(self, field: str, name: str, values: Raw) -> KubernetesObject:
        """Return a new object of the kind of `field`. Raises TraceError for any other kind."""
        made = self.make(name, values) if name else None
        if made is None or made.WhichOneof("object") != field:
            raise TraceError(str(self.path(name)), f"is not a template of a {_KIND_NAMES[field]}")
        return made

    def _made(self, name: str, values: Raw) -> KubernetesObject | None:
        raw = self._raw(name, values)
        return read_object(str(self.path(name)), raw) if is_carried(raw) else None

    def _raw(self, name: str, values: Raw) -> Raw:
        text, where = self._text(name), str(self.path(name))
        try:
            expanded = expand(text, values)
            raw = bounds.yaml_value(expanded, where)
        except (yaml.YAMLError, TemplateError) as error:
            raise TraceError(where, f"is not an object template: {error}") from error
        if not isinstance(raw, dict):
            raise TraceError(where, "is not an object template: expected a mapping")
        return raw

    def _text(self, name: str) -> str:
        if name not in self._texts:
            path = self.path(name)
            try:
                with path.open("rb") as file:
                    self._texts[name] = bounds.content(file, str(path)).decode()
            except UnicodeDecodeError as error:
                raise TraceError(str(path), f"is not UTF-8: {error.reason}") from error
            except OSError as error:
                problem = f"the template cannot be read: {error.strerror or error}"
                raise TraceError(str(path), problem) from error
        return self._texts[name]


class NameGenerator:
    """Names objects by generateName and a number; upstream appends five random letters."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def name(self, meta: ObjectMeta, kind: str) -> None:
        """Name an object that has no name."""
        if meta.name:
            return
        prefix = meta.generate_name or f"{kind.lower()}-"
        key = (kind, meta.namespace, prefix)
        meta.name = f"{prefix}{self._counts[key]}"
        self._counts[key] += 1


_TOKEN = re.compile(r'\s*(\(|\)|\.[A-Za-z_]\w*|[A-Za-z_]\w*|-?\d+(?:\.\d+)?|"[^"\\]*")')
_Value = object


class TemplateError(ValueError):
    """An unsupported action, or one that cannot be computed."""


def is_template(text: str) -> bool:
    """Return whether the text has an action."""
    return "{{" in text


def expand(text: str, values: Mapping[str, object]) -> str:
    """Return the text with its actions replaced. Raises TemplateError, which names the action."""
    parts, end, trim = list[str](), 0, False
    while (start := text.find("{{", end)) >= 0 and (close := text.find("}}", start)) >= 0:
        before, action = text[end:start], text[start + 2 : close]
        before = before.lstrip() if trim else before
        parts.append(before.rstrip() if action.startswith("-") else before)
        action = action.removeprefix("-")
        end, trim = close + 2, action.endswith("-")
        action = action.removesuffix("-").strip()
        if not action.startswith("/*"):
            parts.append(_text(_evaluate(action, values)))
    rest = text[end:]
    parts.append(rest.lstrip() if trim else rest)
    return "".join(parts)


def _evaluate(action: str, values: Mapping[str, object]) -> _Value:
    tokens, at = list[str](), 0
    while at < len(action):
        match = _TOKEN.match(action, at)
        if match is None:
            raise TemplateError(f"the action {{{{{action}}}}} is not supported")
        tokens.append(match[1])
        at = match.end()
    try:
        value, end = _operands(tokens, 0, values)
    except IndexError as error:
        raise TemplateError(f"the action {{{{{action}}}}} is not complete") from error
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise TemplateError(f"the action {{{{{action}}}}}: {error}") from error
    if end != len(tokens):
        raise TemplateError(f"the action {{{{{action}}}}}: unexpected {tokens[end]!r}")
    return value


def _operands(tokens: Sequence[str], at: int, values: Mapping[str, object]) -> tuple[_Value, int]:
    """Return the value of the call or operand at `at`, and the index after it."""
    name = tokens[at]
    if not name[0].isalpha():
        return _operand(tokens, at, values)
    function = _FUNCTIONS.get(name)
    if function is None:
        raise ValueError(f"no function {name!r}")
    arguments, at = list[float](), at + 1
    while at < len(tokens) and tokens[at] != ")":
        value, at = _operand(tokens, at, values)
        arguments.append(_number(value))
    return function(arguments), at


def _operand(tokens: Sequence[str], at: int, values: Mapping[str, object]) -> tuple[_Value, int]:
    symbol = tokens[at]
    if symbol == "(":
        value, at = _operands(tokens, at + 1, values)
        if at >= len(tokens) or tokens[at] != ")":
            raise ValueError("a parenthesis is not closed")
        return value, at + 1
    if symbol[0] == ".":
        if symbol[1:] not in values:
            raise ValueError(f"no value {symbol!r}")
        return values[symbol[1:]], at + 1
    if symbol[0] == '"':
        return symbol[1:-1], at + 1
    if symbol == ")" or symbol[0].isalpha():
        raise ValueError(f"{symbol!r} is not a value")
    return float(symbol) if "." in symbol else int(symbol), at + 1


def _number(value: _Value) -> float:
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        return float(value)
    raise ValueError(f"{value!r} is not a number")


def _text(value: _Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _two(arguments: Sequence[float]) -> tuple[float, float]:
    if len(arguments) != 2:
        raise ValueError(f"{len(arguments)} arguments; expected two")
    return arguments[0], arguments[1]


def _difference(arguments: Sequence[float]) -> float:
    first, second = _two(arguments)
    return first - second


def _quotient(arguments: Sequence[float]) -> float:
    first, second = _two(arguments)
    return first / second


def _remainder(arguments: Sequence[float]) -> int:
    first, second = _two(arguments)
    return int(math.fmod(int(first), int(second)))


_FUNCTIONS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "AddFloat": sum,
    "AddInt": lambda arguments: int(sum(arguments)),
    "SubtractFloat": _difference,
    "SubtractInt": lambda arguments: int(_difference(arguments)),
    "MultiplyFloat": math.prod,
    "MultiplyInt": lambda arguments: int(math.prod(arguments)),
    "DivideFloat": _quotient,
    "DivideInt": lambda arguments: int(_quotient(arguments)),
    "Mod": _remainder,
}
