"""A kubelet's recorded eviction against the pods of its node. Pure.

A recording tells the kubelet's words, not what every pod of the node used. The order in which pods
go is: pods that use more than they asked for, lower priority, more use above the request (process
ids: priority first). So some evictions are right whatever the others used, some cannot be right,
and of the rest the recording cannot tell.

Source: kubernetes v1.32 pkg/kubelet/eviction/helpers.go, rankMemoryPressure, rankPIDPressure,
rankDiskPressureFunc, evictionMessage; eviction_manager.go, localStorageEviction.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from replay.compare.explain import Explanation, Reason
from replay.compare.verdict import Ground, Verdict
from replay.importers.recording.survey import TERMINAL
from reprieve.kube.v1beta1.pod_pb2 import Pod
from services.kube import quantity
from services.kube.pod import SYSTEM_CRITICAL_PRIORITY

EVICTED = "Evicted"
"""status.reason of a pod that its kubelet evicted."""
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
"""Resources of which a message names the containers that use more than they asked for."""


class EvictionVerdict(NamedTuple):
    """How an eviction was judged, and what explains it where the recording cannot tell."""

    verdict: Verdict
    explanation: Explanation | None = None


def judged_eviction(pod: Pod, others: Sequence[Pod], message: str) -> EvictionVerdict:
    """Judge an eviction by the kubelet's words; `others` are the pods of its node besides it."""
    told = f"evicted from {pod.spec.node_name}: {message.strip()}"
    if _is_critical(pod):
        return _differs(told, "kept: a kubelet evicts no critical pod")
    low = _LOW.search(message)
    if low is None:
        return _by_own_limit(pod, message, told)
    rivals = [
        each for each in others if each.status.phase not in TERMINAL and not _is_critical(each)
    ]
    if not rivals:
        return _agrees(Ground.ALONE, told)
    own = pod.spec.priority
    lower = [each for each in rivals if each.spec.priority < own]
    if low[1] == _PIDS and lower:
        first = lower[0].metadata
        return _differs(told, f"{first.namespace}/{first.name} first: its priority is lower")
    higher = all(each.spec.priority > own for each in rivals)
    goes_first = low[1] == _PIDS or _exceeds(pod, low[1], message)
    if higher and goes_first and not _is_reclaimed(message):
        return _agrees(Ground.FIRST, told)
    pods = f"{len(rivals)} other pod{'s' if len(rivals) > 1 else ''}"
    which = f"which of the pods on {pod.spec.node_name} was first"
    why = f"{which} follows from the {low[1]} that its {pods} used, which is not recorded"
    return _unknown(told, "not known", why)


def _by_own_limit(pod: Pod, message: str, told: str) -> EvictionVerdict:
    """Judge an eviction for a limit of the pod's own: agreed where the pod has that limit."""
    if match := _VOLUME.search(message):
        limits = [each.empty_dir.size_limit for each in pod.spec.volumes if each.name == match[1]]
        limit = match[2]
    elif match := _CONTAINER.search(message):
        named = (each for each in pod.spec.containers if each.name == match[1])
        limits, limit = [each.resources.limits.get(_STORAGE, "") for each in named], match[2]
    elif match := _POD.search(message):
        total = sum(_bytes(each.resources.limits.get(_STORAGE, "")) for each in pod.spec.containers)
        limits, limit = [str(total)], match[1]
    else:
        text = "the kubelet's words do not tell what the node was low on"
        return _unknown(told, "not told", text)
    if any(_bytes(each) == _bytes(limit) for each in limits):
        return _agrees(Ground.LIMIT, told)
    return _differs(told, "kept: the pod has no such limit")


def _exceeds(pod: Pod, resource: str, message: str) -> bool:
    """Tell whether the message shows that the pod used more than it asked for, in all."""
    offending = set(_OFFENDING.findall(message))
    return resource in _COUNTED and {each.name for each in pod.spec.containers} <= offending


def _is_reclaimed(message: str) -> bool:
    """Tell whether no less than the threshold was available: minimum reclaim, which is not told."""
    match = _THRESHOLD.search(message)
    return match is not None and _bytes(match[2]) >= _bytes(match[1])


def _is_critical(pod: Pod) -> bool:
    notes = pod.metadata.annotations
    static = notes.get(_SOURCE, "api") != "api"
    return static or _MIRROR in notes or pod.spec.priority >= SYSTEM_CRITICAL_PRIORITY


def _bytes(text: str) -> int:
    """Return a quantity's value, -1 where it is none."""
    try:
        return quantity.value(text)
    except quantity.QuantityError:
        return -1


def _agrees(ground: Ground, told: str) -> EvictionVerdict:
    return EvictionVerdict(Verdict(ground=ground, expected=told, got=told))


def _differs(told: str, got: str) -> EvictionVerdict:
    return EvictionVerdict(Verdict(ground=Ground.DIFFERS, expected=told, got=got))


def _unknown(told: str, got: str, why: str) -> EvictionVerdict:
    verdict = Verdict(ground=Ground.DIFFERS, expected=told, got=got)
    return EvictionVerdict(verdict, Explanation(reason=Reason.MISSING, text=why))
