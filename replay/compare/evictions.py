"""Compares a kubelet's recorded eviction with the pods of its node. Pure.

A recording has the kubelet's message, but not the usage of every pod on the node. A kubelet ranks
pods by usage above requests, then lower priority, then the amount above requests (for process IDs
by priority first). So some evictions are right whatever the other pods used, some cannot be right,
and for the rest the recording does not have enough data.

Source: kubernetes v1.32 pkg/kubelet/eviction/helpers.go, rankMemoryPressure, rankPIDPressure,
rankDiskPressureFunc, evictionMessage; eviction_manager.go, localStorageEviction.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from replay.compare.explain import DifferenceExplanation, DifferenceReason
from replay.compare.verdict import DecisionVerdict, Match
from reprieve.kube.v1beta1.pod_pb2 import Pod
from services.kube import quantity
from services.kube.pod import SYSTEM_CRITICAL_PRIORITY, TERMINAL_PHASES

EVICTED = "Evicted"
"""status.reason of a pod that a kubelet evicted."""
_LOW = re.compile(r"The node was low on resource: ([a-z-]+)")
_THRESHOLD = re.compile(r"Threshold quantity: ([^,\s]+), available: ([^,\s]+?)\.(?:\s|$)")
_OFFENDING = re.compile(r"Container (\S+) was using \S+, request is \S+, has larger consumption")
_VOLUME = re.compile(r'Usage of EmptyDir volume "?([^"\s]+)"? exceeds the limit "([^"]+)"')
_CONTAINER = re.compile(r"Container (\S+) exceeded its local ephemeral storage limit \"([^\"]+)\"")
_POD = re.compile(
    r"Pod ephemeral local storage usage exceeds the total limit of containers (\S+)\."
)
_SOURCE, _MIRROR = "kubernetes.io/config.source", "kubernetes.io/config.mirror"
_STORAGE, _PIDS = "ephemeral-storage", "pids"
_COUNTED = frozenset({"memory", _STORAGE})
"""Resources for which the message names the containers whose usage exceeds their requests."""


class EvictionVerdict(NamedTuple):
    """The verdict on an eviction, with an explanation if the recording lacks data."""

    verdict: DecisionVerdict
    explanation: DifferenceExplanation | None = None


def compare_eviction(pod: Pod, others: Sequence[Pod], message: str) -> EvictionVerdict:
    """Compare an eviction by the kubelet's message; `others` are the other pods of its node."""
    expected = f"evicted from {pod.spec.node_name}: {message.strip()}"
    if _is_critical(pod):
        return _differs(expected, "kept: a kubelet evicts no critical pod")
    low = _LOW.search(message)
    if low is None:
        return _by_own_limit(pod, message, expected)
    rivals = [
        other
        for other in others
        if other.status.phase not in TERMINAL_PHASES and not _is_critical(other)
    ]
    if not rivals:
        return _agrees(Match.ALONE, expected)
    priority = pod.spec.priority
    lower = [rival for rival in rivals if rival.spec.priority < priority]
    if low[1] == _PIDS and lower:
        first = lower[0].metadata
        return _differs(expected, f"{first.namespace}/{first.name} first: its priority is lower")
    higher = all(rival.spec.priority > priority for rival in rivals)
    goes_first = low[1] == _PIDS or _exceeds(pod, low[1], message)
    if higher and goes_first and not _is_reclaimed(message):
        return _agrees(Match.FIRST, expected)
    pods = f"{len(rivals)} other pod{'s' if len(rivals) > 1 else ''}"
    which = f"which of the pods on {pod.spec.node_name} was first"
    why = f"{which} follows from the {low[1]} that its {pods} used, which is not recorded"
    return _unknown(expected, "not known", why)


def _by_own_limit(pod: Pod, message: str, expected: str) -> EvictionVerdict:
    if match := _VOLUME.search(message):
        limits = [
            volume.empty_dir.size_limit for volume in pod.spec.volumes if volume.name == match[1]
        ]
        limit = match[2]
    elif match := _CONTAINER.search(message):
        named = (container for container in pod.spec.containers if container.name == match[1])
        limits, limit = (
            [container.resources.limits.get(_STORAGE, "") for container in named],
            match[2],
        )
    elif match := _POD.search(message):
        total = sum(
            _bytes(container.resources.limits.get(_STORAGE, ""))
            for container in pod.spec.containers
        )
        limits, limit = [str(total)], match[1]
    else:
        text = "the kubelet's message does not name the resource that the node was low on"
        return _unknown(expected, "not known", text)
    if any(_bytes(stated) == _bytes(limit) for stated in limits):
        return _agrees(Match.LIMIT, expected)
    return _differs(expected, "kept: the pod has no such limit")


def _exceeds(pod: Pod, resource: str, message: str) -> bool:
    """Return whether the message shows that every container used more than it requests."""
    offending = set(_OFFENDING.findall(message))
    return (
        resource in _COUNTED and {container.name for container in pod.spec.containers} <= offending
    )


def _is_reclaimed(message: str) -> bool:
    """Return whether at least the threshold was available: an eviction for minimum reclaim."""
    match = _THRESHOLD.search(message)
    return match is not None and _bytes(match[2]) >= _bytes(match[1])


def _is_critical(pod: Pod) -> bool:
    notes = pod.metadata.annotations
    static = notes.get(_SOURCE, "api") != "api"
    return static or _MIRROR in notes or pod.spec.priority >= SYSTEM_CRITICAL_PRIORITY


def _bytes(text: str) -> int:
    """Return a quantity's value, -1 for a text that is not a quantity."""
    try:
        return quantity.value(text)
    except quantity.QuantityError:
        return -1


def _agrees(match: Match, expected: str) -> EvictionVerdict:
    return EvictionVerdict(DecisionVerdict(match=match, expected=expected, got=expected))


def _differs(expected: str, got: str) -> EvictionVerdict:
    return EvictionVerdict(DecisionVerdict(match=Match.DIFFERS, expected=expected, got=got))


def _unknown(expected: str, got: str, why: str) -> EvictionVerdict:
    verdict = DecisionVerdict(match=Match.DIFFERS, expected=expected, got=got)
    return EvictionVerdict(
        verdict, DifferenceExplanation(reason=DifferenceReason.MISSING, text=why)
    )
