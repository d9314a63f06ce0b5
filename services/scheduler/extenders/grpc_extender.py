"""An extender over gRPC (ExtenderService), and the objects that extenders receive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from reprieve.kube.v1beta1 import node_pb2, pod_pb2
from reprieve.scheduler.v1beta1 import extender_service_pb2 as service_pb2
from reprieve.scheduler.v1beta1 import extender_service_pb2_grpc, scheduler_pb2
from services.framework.preemption.candidates import Candidate
from services.framework.preemption.outcome import ExtenderError
from services.kube.node import Node
from services.kube.pod import Pod
from services.kube.time import SECOND_NS
from services.rpc.kube.messages import node_to_message, pod_to_message
from services.rpc.required import PROBLEM, missing
from services.scheduler.config.extenders import ExtenderConfig
from services.scheduler.core.cycle.extenders import ExtenderTerms, FilterAnswer, NodeVictims
from services.scheduler.outcomes import pod_ref

_NOT_ITS_OWN = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED})
"""Codes whose details gRPC generates: they contain addresses and times."""
_A = TypeVar("_A", bound=Message)


def filter_answer(message: service_pb2.FilterResponse) -> FilterAnswer:
    """Return the response of Filter."""
    return FilterAnswer(
        passed=tuple(message.node_names),
        failed=dict(message.failed_nodes),
        unresolvable=dict(message.failed_and_unresolvable_nodes),
    )


def node_victims(messages: Iterable[Any]) -> list[NodeVictims]:
    """Return the candidates that ProcessPreemption left."""
    return [
        NodeVictims(
            node_name=message.node_name,
            pod_uids=tuple(victim.uid for victim in message.victims),
            budget_violations=message.budget_violations,
        )
        for message in messages
    ]


class GrpcExtender:
    """One extender; `sources` has the objects that it is sent."""

    def __init__(
        self,
        config: ExtenderConfig,
        terms: ExtenderTerms,
        channel: grpc.Channel,
        sources: ExtenderObjects,
    ) -> None:
        self._config = config
        self._terms = terms
        self._channel = channel
        self._stub = extender_service_pb2_grpc.ExtenderServiceStub(channel)
        self._sources = sources

    @property
    def terms(self) -> ExtenderTerms:
        """Return the configuration of the extender."""
        return self._terms

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    def filter(self, pod: Pod, nodes: Sequence[Node]) -> FilterAnswer | ExtenderError:
        """Call Filter."""
        names, messages = self._names_or_nodes(nodes)
        answer = self._call(
            self._stub.Filter,
            service_pb2.FilterRequest(pod=self._sources.pod(pod), nodes=messages, node_names=names),
        )
        if isinstance(answer, ExtenderError):
            return answer
        sent = frozenset(node.name for node in nodes)
        for name in answer.node_names:
            if name not in sent:
                text = f"claims a filtered node {name!r} which is not found in the input node list"
                return self._error("Filter", text)
        return filter_answer(answer)

    def prioritize(
        self, pod: Pod, nodes: Sequence[Node]
    ) -> Sequence[tuple[str, int]] | ExtenderError:
        """Call Prioritize."""
        names, messages = self._names_or_nodes(nodes)
        answer = self._call(
            self._stub.Prioritize,
            service_pb2.PrioritizeRequest(
                pod=self._sources.pod(pod), nodes=messages, node_names=names
            ),
        )
        if isinstance(answer, ExtenderError):
            return answer
        return [(host.node_name, host.score) for host in answer.scores]

    def process_preemption(
        self, pod: Pod, candidates: Sequence[Candidate]
    ) -> Sequence[NodeVictims] | ExtenderError:
        """Call ProcessPreemption."""
        request = service_pb2.ProcessPreemptionRequest(pod=self._sources.pod(pod))
        for offered in candidates:
            candidate = request.candidates.add(
                node_name=offered.node, budget_violations=offered.violations
            )
            candidate.victims.extend(map(pod_ref, offered.victims))
            if not self._config.node_cache_capable:
                candidate.pods.extend(self._sources.pod(pod) for pod in offered.victims)
        answer = self._call(self._stub.ProcessPreemption, request)
        if isinstance(answer, ExtenderError):
            return answer
        return node_victims(answer.candidates)

    def bind(self, pod: Pod, node_name: str) -> ExtenderError | None:
        """Call Bind."""
        request = service_pb2.BindRequest(pod=pod_ref(pod), node_name=node_name)
        answer = self._call(self._stub.Bind, request)
        return answer if isinstance(answer, ExtenderError) else None

    def _names_or_nodes(self, nodes: Sequence[Node]) -> tuple[list[str], list[node_pb2.Node]]:
        """Return names or messages of nodes, by what the extender keeps itself."""
        if self._config.node_cache_capable:
            return [node.name for node in nodes], []
        return [], [self._sources.node(node) for node in nodes]

    def _call(self, method: Callable[..., _A], request: Any) -> _A | ExtenderError:
        name = type(request).DESCRIPTOR.name.removesuffix("Request")
        try:
            answer = method(request, timeout=self._config.timeout_ns / SECOND_NS)
        except grpc.RpcError as error:
            code = error.code() if isinstance(error, grpc.Call) else grpc.StatusCode.UNKNOWN
            if code is grpc.StatusCode.DEADLINE_EXCEEDED:
                text = f"no answer within {self._config.timeout_ns / SECOND_NS:g} s"
                return self._error(name, text)
            details = "" if code in _NOT_ITS_OWN else error.details()
            return self._error(name, f"answers {code.name}{details and ': '}{details}")
        path = missing(answer)
        return self._error(name, f"answers wrongly: {path}: {PROBLEM}") if path else answer

    def _error(self, call: str, text: str) -> ExtenderError:
        return ExtenderError(message=f'extender "{self._terms.name}": {call}: {text}')


class ExtenderObjects:
    """Messages of pods (by UID) and nodes (by name); for an unknown one, made from the value.

    A session hands over the pods' messages that it keeps (`pods`), and the nodes' as they come.
    """

    def __init__(self) -> None:
        self.pods: Mapping[str, pod_pb2.Pod] = {}
        self._nodes: dict[str, node_pb2.Node] = {}

    def take_nodes(self, round_: scheduler_pb2.Round) -> None:
        """Keep the nodes that a round brings."""
        for event in round_.events:
            kind = event.WhichOneof("event")
            if kind == "remove" and event.remove.kind == "Node":
                self._nodes.pop(event.remove.name, None)
            elif kind in {"add", "update"}:
                put = event.add if kind == "add" else event.update
                if put.HasField("node"):
                    node = node_pb2.Node()
                    node.CopyFrom(put.node)
                    self._nodes[node.metadata.name] = node

    def pod(self, pod: Pod) -> pod_pb2.Pod:
        """Return a pod's message."""
        return self.pods.get(pod.uid) or pod_to_message(pod)

    def node(self, node: Node) -> node_pb2.Node:
        """Return a node's message."""
        return self._nodes.get(node.name) or node_to_message(node)
