"""What an extender answers in JSON, read as Go's decoder would read it: types are strict.

Source: kubernetes v1.34 pkg/scheduler/extender.go, Filter, Prioritize, Bind, convertToVictims;
staging/src/k8s.io/kube-scheduler/extender/v1/types.go.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from services.scheduler.core.extenders import FilterAnswer, NodeVictims

_INT64 = range(-(2**63), 2**63)
_SHOWN_MAX = 512


class AnswerError(ValueError):
    """An answer that says that something failed, or that cannot be taken."""


def parsed(body: bytes) -> object:
    """Return what the body holds. Raises AnswerError."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise AnswerError(f"the answer is no JSON: {error}") from None


def filtered(answer: object, asked: frozenset[str], *, by_name: bool) -> FilterAnswer:
    """Read an ExtenderFilterResult; `by_name` tells that names were sent. Raises AnswerError.

    A node that was not asked about is refused.
    """
    fields = _fields(answer, "the answer")
    _check_error(fields)
    passed: tuple[str, ...] = ()
    names, nodes = fields.get("nodenames"), fields.get("nodes")
    if by_name and names is not None:
        passed = tuple(_text(each, "NodeNames") for each in _list(names, "NodeNames"))
    elif nodes is not None:
        items = _list(_fields(nodes, "Nodes").get("items"), "Nodes.items")
        passed = tuple(_node_name(each) for each in items)
    for name in passed:
        if name not in asked:
            shown = name[:_SHOWN_MAX]
            text = f"claims a filtered node {shown!r} which is not found in the input node list"
            raise AnswerError(text)
    return FilterAnswer(
        passed=passed,
        failed=_texts(fields, "FailedNodes"),
        unresolvable=_texts(fields, "FailedAndUnresolvableNodes"),
    )


def priorities(answer: object) -> list[tuple[str, int]]:
    """Read a HostPriorityList. Raises AnswerError."""
    found: list[tuple[str, int]] = []
    for each in _list(answer, "the answer"):
        fields = _fields(each, "a host's priority")
        host = _text(fields.get("host"), "Host")
        found.append((host, _integer(fields.get("score"), "Score")))
    return found


def preemption(answer: object) -> list[NodeVictims]:
    """Read an ExtenderPreemptionResult. Raises AnswerError."""
    given = _fields(answer, "the answer").get("nodenametometavictims")
    found: list[NodeVictims] = []
    for name, each in _mapping(given, "NodeNameToMetaVictims").items():
        fields = _fields(each, "a node's victims")
        pods = [_fields(pod, "a victim") for pod in _list(fields.get("pods"), "Pods")]
        found.append(
            NodeVictims(
                node_name=name,
                pod_uids=tuple(_text(pod.get("uid"), "UID") for pod in pods),
                budget_violations=_integer(fields.get("numpdbviolations"), "NumPDBViolations"),
            )
        )
    return found


def binding(answer: object) -> None:
    """Read an ExtenderBindingResult. Raises AnswerError where the binding failed."""
    _check_error(_fields(answer, "the answer"))


def _check_error(fields: Mapping[str, object]) -> None:
    error = _text(fields.get("error"), "Error")
    if error:
        raise AnswerError(error)


def _mapping(value: object, name: str) -> dict[str, object]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise AnswerError(f"{name} is not an object")
    return value


def _fields(value: object, name: str) -> dict[str, object]:
    """Return an object's fields under their names in lower case, the last of equal ones."""
    return {key.lower(): each for key, each in _mapping(value, name).items()}


def _list(value: object, name: str) -> list[object]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise AnswerError(f"{name} is not a list")
    return value


def _text(value: object, name: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise AnswerError(f"{name} is not a text")
    return value


def _integer(value: object, name: str) -> int:
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or value not in _INT64:
        raise AnswerError(f"{name} is not a whole number of 64 bits")
    return value


def _texts(fields: Mapping[str, object], name: str) -> dict[str, str]:
    given = _mapping(fields.get(name.lower()), name)
    return {key: _text(each, f"{name}[{key}]") for key, each in given.items()}


def _node_name(node: object) -> str:
    metadata = _fields(_fields(node, "a node").get("metadata"), "metadata")
    return _text(metadata.get("name"), "metadata.name")
