"""An extender over HTTP and JSON, by upstream's protocol: an existing webhook works unchanged.

Names of fields are read whatever their case, as Go does. A verb is a path below urlPrefix.

Source: kubernetes v1.34 pkg/scheduler/extender.go;
staging/src/k8s.io/kube-scheduler/extender/v1/types.go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import orjson

from services.config.scheduler_extenders import ExtenderConfig
from services.kube.node import Node
from services.kube.pod import Pod
from services.rpc.kube_json import to_json
from services.scheduler.core.extenders import ExtenderTerms, FilterAnswer, NodeVictims
from services.scheduler.core.preemption.preemptor import ExtenderError
from services.scheduler.core.preemption.victims import Candidate
from services.scheduler.extenders import http_answers
from services.scheduler.extenders.http_answers import AnswerError
from services.scheduler.extenders.http_call import CallError, HttpCaller
from services.scheduler.extenders.sources import Sources

_T = TypeVar("_T")


class HttpExtender:
    """One extender; `sources` has the objects that it is sent."""

    def __init__(
        self, config: ExtenderConfig, terms: ExtenderTerms, caller: HttpCaller, sources: Sources
    ) -> None:
        self._config = config
        self._terms = terms
        self._caller = caller
        self._sources = sources
        self._encoded: dict[str, tuple[Node, orjson.Fragment]] = {}

    @property
    def terms(self) -> ExtenderTerms:
        """Return what is agreed with it."""
        return self._terms

    def close(self) -> None:
        """Close the connection."""
        self._caller.close()

    def filter(self, pod: Pod, nodes: Sequence[Node]) -> FilterAnswer | ExtenderError:
        """Ask the filter verb."""
        asked = frozenset(node.name for node in nodes)
        by_name = self._config.node_cache_capable

        def read(answer: object) -> FilterAnswer:
            return http_answers.filtered(answer, asked, by_name=by_name)

        return self._ask(self._config.filter_verb, self._args(pod, nodes), read)

    def prioritize(
        self, pod: Pod, nodes: Sequence[Node]
    ) -> Sequence[tuple[str, int]] | ExtenderError:
        """Ask the prioritize verb."""
        args = self._args(pod, nodes)
        return self._ask(self._config.prioritize_verb, args, http_answers.priorities)

    def process_preemption(
        self, pod: Pod, candidates: Sequence[Candidate]
    ) -> Sequence[NodeVictims] | ExtenderError:
        """Ask the preempt verb; the answer holds UIDs, whatever was sent."""
        brief = self._config.node_cache_capable
        victims = {
            each.node: {
                "Pods": [{"UID": v.uid} if brief else self._pod(v) for v in each.victims],
                "NumPDBViolations": each.violations,
            }
            for each in candidates
        }
        args = {
            "Pod": self._pod(pod),
            "NodeNameToVictims": None if brief else victims,
            "NodeNameToMetaVictims": victims if brief else None,
        }
        return self._ask(self._config.preempt_verb, args, http_answers.preemption)

    def bind(self, pod: Pod, node_name: str) -> ExtenderError | None:
        """Ask the bind verb."""
        args = {
            "PodName": pod.name,
            "PodNamespace": pod.namespace,
            "PodUID": pod.uid,
            "Node": node_name,
        }
        found = self._ask(self._config.bind_verb, args, http_answers.binding)
        return found if isinstance(found, ExtenderError) else None

    def _ask(self, verb: str, args: object, read: Callable[[object], _T]) -> _T | ExtenderError:
        try:
            return read(http_answers.parsed(self._caller.post(verb, orjson.dumps(args))))
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
