"""Finds the decision to explain in a run: the pod by name, the attempt by time or number."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from replay.errors import RunError
from replay.results import durations
from replay.results.run.directory import RunDirectory
from replay.results.run.files import HISTORY
from reprieve.kube.v1beta1 import meta_pb2, pod_pb2
from reprieve.trace.v1beta1 import trace_pb2

_Kind = Literal["evicted", "rejected", "created"]
_NEAR = 3
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainQuery:
    """A pod by name, "namespace/name" or UID, and one of its attempts; `namespace` "" is any.

    offset_ns, at_ns: a moment, since the run's first event or since the Unix epoch; neither: the
    run's end. attempt: the number of the attempt, from 1; 0: the last attempt up to the moment.
    """

    pod: str
    namespace: str = ""
    offset_ns: int | None = None
    at_ns: int | None = None
    attempt: int = 0

    @property
    def has_moment(self) -> bool:
        """Return whether the query names a moment."""
        return self.offset_ns is not None or self.at_ns is not None


@dataclass(slots=True, kw_only=True)
class PodLife:
    """A pod's life in the run's history; times in ns since the Unix epoch.

    created_ns: when the scheduler received the pod. gates: times from which on the pod had which
    scheduling gates. entries: the log's decisions about the pod.
    """

    uid: str
    namespace: str
    name: str
    created_ns: int
    node_name: str
    removed_ns: int | None = None
    gates: list[tuple[int, tuple[str, ...]]] = field(default_factory=list)
    entries: list[trace_pb2.Decision] = field(default_factory=list)

    @property
    def key(self) -> str:
        """Return namespace/name."""
        return f"{self.namespace}/{self.name}"

    def gates_at(self, at_ns: int) -> tuple[str, ...]:
        """Return the pod's scheduling gates at a moment."""
        past = [gates for since_ns, gates in self.gates if since_ns <= at_ns]
        return past[-1] if past else ()

    def eviction_until(self, until_ns: int | None) -> trace_pb2.Decision | None:
        """Return the entry of the pod's eviction up to `until_ns`; None if it was not evicted."""
        return self._first("evicted", until_ns)

    def rejection_until(self, until_ns: int | None) -> trace_pb2.Decision | None:
        """Return the entry of a kubelet's rejection up to `until_ns`; None if it was admitted."""
        return self._first("rejected", until_ns)

    @property
    def owner(self) -> meta_pb2.ObjectReference | None:
        """Return the object whose controller created the pod; None for a bare pod."""
        created = self._first("created", None)
        return created.observed.created.owner if created is not None else None

    def _first(self, kind: _Kind, until_ns: int | None) -> trace_pb2.Decision | None:
        for entry in self.entries:
            if entry.observed.HasField(kind) and (until_ns is None or entry.time_ns <= until_ns):
                return entry
        return None

    @property
    def attempts(self) -> list[trace_pb2.Decision]:
        """Return the entries that end a scheduling attempt, in order."""
        return [entry for entry in self.entries if attempt_of(entry)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainTarget:
    """The attempt to explain, and the time until which the run is replayed.

    entry: the log's entry of the attempt, None if the pod was not tried. ahead: the number of
    attempts that the log has before this entry at the same moment. until_ns: the moment at which
    the pod's place in the queue is looked up; None: right after the attempt. eviction, rejection:
    the entries of a kubelet's eviction or rejection of the pod up to the moment of the query; None
    without one. cost_ns: the time from the decision to its entry, 0 if both have the same time;
    otherwise `ahead` is 0.
    """

    life: PodLife
    entry: trace_pb2.Decision | None
    ahead: int
    start_ns: int
    until_ns: int | None
    eviction: trace_pb2.Decision | None = None
    rejection: trace_pb2.Decision | None = None
    cost_ns: int = 0

    @property
    def from_ns(self) -> int:
        """Return the moment from which the run's rounds must be sent one by one."""
        if self.entry is not None:
            return self.entry.time_ns - self.cost_ns
        return self.start_ns if self.until_ns is None else self.until_ns

    @property
    def attempt(self) -> int:
        """Return the attempt's number, from 1; 0 if the pod was not tried."""
        return attempt_of(self.entry) if self.entry is not None else 0


def attempt_of(entry: trace_pb2.Decision) -> int:
    """Return the number of the attempt that an entry ends; 0 for an entry that ends none."""
    observed = entry.observed
    return observed.scheduled.attempts or observed.failed_scheduling.attempts


def find_target(run: RunDirectory, query: ExplainQuery) -> ExplainTarget:
    """Return the attempt of a query. Raises RunError if the run does not have it."""
    if not (run.path / HISTORY).is_file():
        raise RunError(
            f"{run.path} has no history ({HISTORY}), so its decisions cannot be explained"
        )
    asked_ns = None
    if query.has_moment:
        asked_ns = run.moment_ns(offset_ns=query.offset_ns, at_ns=query.at_ns)
    start_ns, end_ns, lives = _lives(run)
    until_ns = end_ns if asked_ns is None else asked_ns
    life = _chosen(query, lives, start_ns, until_ns)
    ahead = _read_entries(run, life)
    tried = life.attempts
    evicted, rejected = life.eviction_until(asked_ns), life.rejection_until(asked_ns)
    if query.attempt:
        entry: trace_pb2.Decision | None = _numbered(life, tried, query.attempt)
    else:
        entry = next((entry for entry in reversed(tried) if entry.time_ns <= until_ns), None)
        is_over = bool(life.node_name) or (life.removed_ns or until_ns + 1) <= until_ns
        if entry is None and evicted is None and rejected is None and is_over:
            raise RunError(_why_none(life, start_ns))
    return ExplainTarget(
        life=life,
        entry=entry,
        ahead=ahead[entry.sequence] if entry is not None else 0,
        start_ns=start_ns,
        until_ns=None if query.attempt else until_ns,
        eviction=evicted,
        rejection=rejected,
    )


def pods_named(run: RunDirectory, pod: str, namespace: str) -> Sequence[PodLife]:
    """Return the lives of a pod, by name, "namespace/name" or UID; `namespace` "" is any.

    Raises RunError if no pod has the name, and if pods of several namespaces have it.
    """
    return _named(pod, namespace, _lives(run)[2])


def _lives(run: RunDirectory) -> tuple[int, int, dict[str, PodLife]]:
    """Return the times of the history's start and end, and every pod in it by UID.

    Patches are skipped, because they change no field that PodLife has.
    """
    start_ns: int | None = None
    end_ns = 0
    lives: dict[str, PodLife] = {}
    for round_ in run.rounds():
        for event in round_.events:
            start_ns = event.time_ns if start_ns is None else start_ns
            case = event.WhichOneof("event")
            if case == "add" and event.add.HasField("pod"):
                meta, spec = event.add.pod.metadata, event.add.pod.spec
                lives[meta.uid] = PodLife(
                    uid=meta.uid,
                    namespace=meta.namespace,
                    name=meta.name,
                    created_ns=event.time_ns,
                    node_name=spec.node_name,
                )
            if case in {"add", "update"}:
                _note_gates(lives, event.time_ns, getattr(event, case).pod)
            elif case == "remove" and event.remove.uid in lives:
                lives[event.remove.uid].removed_ns = event.time_ns
        end_ns = round_.time_ns
    if start_ns is None:
        raise RunError(f"{run.path}: the history is empty")
    return start_ns, end_ns, lives


def _note_gates(lives: Mapping[str, PodLife], at_ns: int, pod: pod_pb2.Pod) -> None:
    life = lives.get(pod.metadata.uid)
    if life is not None:
        life.gates.append((at_ns, tuple(gate.name for gate in pod.spec.scheduling_gates)))


def _chosen(
    query: ExplainQuery, lives: dict[str, PodLife], start_ns: int, until_ns: int
) -> PodLife:
    named = _named(query.pod, query.namespace, lives)
    created = [life for life in named if life.created_ns <= until_ns]
    if not created:
        after = durations.simulated(named[0].created_ns - start_ns)
        raise RunError(f"pod {named[0].key} does not exist yet: it is created at {after}")
    return created[-1]


def _named(pod: str, namespace: str, lives: Mapping[str, PodLife]) -> list[PodLife]:
    prefix, _, name = pod.rpartition("/")
    namespace = prefix or namespace
    named = [
        life
        for life in lives.values()
        if pod == life.uid or (life.name == name and namespace in ("", life.namespace))
    ]
    if not named:
        raise RunError(_unknown(pod, namespace, lives.values()))
    keys = sorted({life.key for life in named})
    if len(keys) > 1:
        raise RunError(
            f"several pods are named {name}: {_listed(keys)}; name one with its namespace"
        )
    return named


def _unknown(pod: str, namespace: str, lives: Iterable[PodLife]) -> str:
    keys = sorted({life.key for life in lives})
    texts = {key: key for key in keys} | {key.partition("/")[2]: key for key in keys}
    asked_for = pod if "/" in pod or not namespace else f"{namespace}/{pod}"
    near = difflib.get_close_matches(asked_for, texts, n=_NEAR, cutoff=0.6)
    near += [text for text in texts if pod in text and text not in near][: _NEAR - len(near)]
    suggested = list(dict.fromkeys(texts[text] for text in near))
    hint = (
        f"; did you mean {_listed(suggested)}?" if suggested else f"; it has {len(keys):,} others"
    )
    return f"the run has no pod {asked_for}{hint}"


def _read_entries(run: RunDirectory, life: PodLife) -> dict[int, int]:
    """Read a pod's entries; return, for each, the number of earlier attempts at its moment."""
    ahead: dict[int, int] = {}
    for entry, before in run.entries(life.uid):
        life.entries.append(entry)
        ahead[entry.sequence] = before
    return ahead


def _why_none(life: PodLife, start_ns: int) -> str:
    if life.node_name:
        return (
            f"pod {life.key} was created with node {life.node_name}: the scheduler did not decide "
            "about it"
        )
    removed = durations.simulated((life.removed_ns or start_ns) - start_ns)
    return f"pod {life.key} was removed at {removed} before any attempt"


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - _SHOWN
    return ", ".join(texts[:_SHOWN]) + (f" and {more:,} more" if more > 0 else "")


def _numbered(
    life: PodLife, tried: Sequence[trace_pb2.Decision], attempt: int
) -> trace_pb2.Decision:
    numbered = [entry for entry in tried if attempt_of(entry) == attempt]
    if numbered:
        return numbered[-1]
    if not tried:
        raise RunError(f"pod {life.key} was never tried")
    last = max(map(attempt_of, tried))
    raise RunError(f"pod {life.key} has no attempt {attempt}: it has 1 to {last}")
