"""An extender over HTTP and JSON, by upstream's protocol: an existing webhook works unchanged.

Field names are read whatever their case, as Go's decoder does, and types are strict. A verb is a
path below urlPrefix.

Source: kubernetes v1.34 pkg/scheduler/extender.go, Filter, Prioritize, Bind, convertToVictims;
staging/src/k8s.io/kube-scheduler/extender/v1/types.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import orjson

from services.framework.preemption.candidates import Candidate
from services.framework.preemption.outcome import ExtenderError
from services.kube.node import Node
from services.kube.pod import Pod
from services.rpc.kube.json_codec import to_json
from services.scheduler.config.extenders import ExtenderConfig
from services.scheduler.core.cycle.extenders import ExtenderTerms, FilterAnswer, NodeVictims
from services.scheduler.extenders.grpc_extender import ExtenderObjects
from services.scheduler.extenders.http_call import CallError, HttpCaller

_T = TypeVar("_T")


class HttpExtender:
    """One extender; `sources` has the objects that it is sent."""

    def __init__(
        self,
        config: ExtenderConfig,
        terms: ExtenderTerms,
        caller: HttpCaller,
        sources: ExtenderObjects,
    ) -> None:
        self._config = config
        self._terms = terms
        self._caller = caller
        self._sources = sources
        self._encoded: dict[str, tuple[Node, orjson.Fragment]] = {}

    @property
    def terms(self) -> ExtenderTerms:
        """Return the configuration of the extender."""
        return self._terms

    def close(self) -> None:
        """Close the connection."""
        self._caller.close()

    def filter(self, pod: Pod, nodes: Sequence[Node]) -> FilterAnswer | ExtenderError:
        """Call the filter verb."""
        sent = frozenset(node.name for node in nodes)
        by_name = self._config.node_cache_capable

        def read(answer: object) -> FilterAnswer:
            return read_filter_result(answer, sent, by_name=by_name)

        return self._ask(self._config.filter_verb, self._args(pod, nodes), read)

    def prioritize(
        self, pod: Pod, nodes: Sequence[Node]
    ) -> Sequence[tuple[str, int]] | ExtenderError:
        """Call the prioritize verb."""
        args = self._args(pod, nodes)
        return self._ask(self._config.prioritize_verb, args, read_priorities)

    def process_preemption(
        self, pod: Pod, candidates: Sequence[Candidate]
    ) -> Sequence[NodeVictims] | ExtenderError:
        """Call the preempt verb; the response holds UIDs, whatever was sent."""
        brief = self._config.node_cache_capable
        victims = {
            candidate.node: {
                "Pods": [{"UID": v.uid} if brief else self._pod(v) for v in candidate.victims],
                "NumPDBViolations": candidate.violations,
            }
            for candidate in candidates
        }
        args = {
            "Pod": self._pod(pod),
            "NodeNameToVictims": None if brief else victims,
            "NodeNameToMetaVictims": victims if brief else None,
        }
        return self._ask(self._config.preempt_verb, args, read_preemption_result)

    def bind(self, pod: Pod, node_name: str) -> ExtenderError | None:
        """Call the bind verb."""
        args = {
            "PodName": pod.name,
            "PodNamespace": pod.namespace,
            "PodUID": pod.uid,
            "Node": node_name,
        }
        error = self._ask(self._config.bind_verb, args, read_binding_result)
        return error if isinstance(error, ExtenderError) else None

    def _ask(self, verb: str, args: object, read: Callable[[object], _T]) -> _T | ExtenderError:
        try:
            return read(parse_json(self._caller.post(verb, orjson.dumps(args))))
        except (CallError, AnswerError) as error:
            text = f'extender "{self._terms.name}": {verb}: {error}'
            return ExtenderError(message=text)

    def _args(self, pod: Pod, nodes: Sequence[Node]) -> dict[str, Any]:
        names = [node.name for node in nodes] if self._config.node_cache_capable else None
        items = None if names is not None else {"metadata": {}, "items": [*map(self._node, nodes)]}
        return {"Pod": self._pod(pod), "Nodes": items, "NodeNames": names}

    def _pod(self, pod: Pod) -> dict[str, Any]:
        return {"metadata": {}, "spec": {}, "status": {}} | to_json(self._sources.pod(pod))

    def _node(self, node: Node) -> orjson.Fragment:
        """Return a node's JSON, which is made once as long as the node stays the same."""
        held = self._encoded.get(node.name)
        if held is not None and held[0] is node:
            return held[1]
        blank: dict[str, Any] = {"metadata": {}, "spec": {}, "status": {}}
        made = orjson.Fragment(orjson.dumps(blank | to_json(self._sources.node(node))))
        self._encoded[node.name] = (node, made)
        return made


_INT64 = range(-(2**63), 2**63)
_SHOWN_MAX = 512


class AnswerError(ValueError):
    """A response that reports a failure, or that breaks the protocol."""


def parse_json(body: bytes) -> object:
    """Return the decoded body. Raises AnswerError."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise AnswerError(f"the answer is no JSON: {error}") from None


def read_filter_result(answer: object, sent: frozenset[str], *, by_name: bool) -> FilterAnswer:
    """Read an ExtenderFilterResult; `by_name` says that names were sent. Raises AnswerError.

    A node that was not sent is refused.
    """
    fields = _fields(answer, "the answer")
    _check_error(fields)
    passed: tuple[str, ...] = ()
    names, nodes = fields.get("nodenames"), fields.get("nodes")
    if by_name and names is not None:
        passed = tuple(_text(name, "NodeNames") for name in _list(names, "NodeNames"))
    elif nodes is not None:
        items = _list(_fields(nodes, "Nodes").get("items"), "Nodes.items")
        passed = tuple(_node_name(item) for item in items)
    for name in passed:
        if name not in sent:
            shown = name[:_SHOWN_MAX]
            text = f"claims a filtered node {shown!r} which is not found in the input node list"
            raise AnswerError(text)
    return FilterAnswer(
        passed=passed,
        failed=_texts(fields, "FailedNodes"),
        unresolvable=_texts(fields, "FailedAndUnresolvableNodes"),
    )


def read_priorities(answer: object) -> list[tuple[str, int]]:
    """Read a HostPriorityList. Raises AnswerError."""
    scores: list[tuple[str, int]] = []
    for item in _list(answer, "the answer"):
        fields = _fields(item, "a host's priority")
        host = _text(fields.get("host"), "Host")
        scores.append((host, _integer(fields.get("score"), "Score")))
    return scores


def read_preemption_result(answer: object) -> list[NodeVictims]:
    """Read an ExtenderPreemptionResult. Raises AnswerError."""
    by_node = _fields(answer, "the answer").get("nodenametometavictims")
    candidates: list[NodeVictims] = []
    for name, victims in _mapping(by_node, "NodeNameToMetaVictims").items():
        fields = _fields(victims, "a node's victims")
        pods = [_fields(pod, "a victim") for pod in _list(fields.get("pods"), "Pods")]
        candidates.append(
            NodeVictims(
                node_name=name,
                pod_uids=tuple(_text(pod.get("uid"), "UID") for pod in pods),
                budget_violations=_integer(fields.get("numpdbviolations"), "NumPDBViolations"),
            )
        )
    return candidates


def read_binding_result(answer: object) -> None:
    """Read an ExtenderBindingResult. Raises AnswerError if the binding failed."""
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
    return {key.lower(): member for key, member in _mapping(value, name).items()}


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
    texts = _mapping(fields.get(name.lower()), name)
    return {key: _text(text, f"{name}[{key}]") for key, text in texts.items()}


def _node_name(node: object) -> str:
    metadata = _fields(_fields(node, "a node").get("metadata"), "metadata")
    return _text(metadata.get("name"), "metadata.name")
