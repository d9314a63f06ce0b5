"""A naive twin of the queue's mode v1.34: dicts of stays that change in place, searched each time.

It knows nothing of heaps, groups, numbered events or snapshots. Source: kubernetes v1.34
pkg/scheduler/backend/queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from services.kube.time import SECOND_NS
from services.queue.core.queued_pod import QueuedPod

INITIAL_S, MAX_S = 1, 10
LEFTOVER_NS = 300 * SECOND_NS

Hint = Callable[[str, QueuedPod, object], bool]


@dataclass(eq=False)
class Stay:
    """A pod's stay; `plugins` and `pending` refused it last, `gate` holds it."""

    pod: QueuedPod
    since_ns: int
    sequence: int
    first_ns: int | None = None
    attempts: int = 0
    refusals: int = 0
    errors: int = 0
    plugins: set[str] = field(default_factory=set)
    pending: set[str] = field(default_factory=set)
    gate: str = ""

    @property
    def refused_by(self) -> set[str]:
        """The plugins that refused the pod."""
        return self.plugins | self.pending


@dataclass
class Twin:
    """The same operations as the queue's, for the feature gates `hints` and `pops_backoff`.

    `interest` tells which plugins registered for an event, in no order.
    """

    hints: bool
    pops_backoff: bool
    interest: Callable[[str], set[str]]
    hint: Hint
    now_ns: int = 0
    cycle: int = 0
    move_cycle: int = -1
    sequence: int = 0
    active: dict[str, Stay] = field(default_factory=dict)
    backoff: dict[str, Stay] = field(default_factory=dict)
    error_backoff: dict[str, Stay] = field(default_factory=dict)
    unschedulable: dict[str, Stay] = field(default_factory=dict)
    flight: list[str | tuple[str, object]] = field(default_factory=list)
    held: dict[str, Stay] = field(default_factory=dict)

    # What the operations do.

    def add(self, pod: QueuedPod) -> None:
        """Add a pod."""
        self.to_active(self.fresh(pod), "PodAdd")

    def update(self, old: QueuedPod, new: QueuedPod, changes: list[str]) -> None:
        """Change a pod; `changes` are the events that it means."""
        if self.hints and new.uid in self.flight:
            self.flight += [(change, new) for change in changes]
            self.held[new.uid].pod = new
            return
        for queue in (self.active, self.backoff, self.error_backoff):
            if new.name in queue:
                queue[new.name].pod = new
                return
        stay = self.unschedulable.get(new.name)
        if stay is None:
            self.to_active(self.fresh(new), "PodUpdate")
            return
        stay.pod = new
        if self.hints:
            for change in changes:
                where = self.requeue(stay, self.verdict(stay, change, new))
                if where == "active" or (self.pops_backoff and where == "backoff"):
                    return
        elif old.digest != new.digest:
            if self.backs_off(stay):
                self.to_backoff(stay)
            else:
                self.to_active(stay, "PodUpdate")

    def delete(self, name: str) -> None:
        """Drop a pod from the first sub-queue that has it."""
        for queue in (self.active, self.backoff, self.error_backoff, self.unschedulable):
            if queue.pop(name, None) is not None:
                return

    def pop(self) -> Stay | None:
        """Begin a cycle."""
        queues = [self.active, self.backoff] if self.pops_backoff else [self.active]
        for queue in queues:
            for stay in list(self.in_order(queue)):
                del queue[stay.pod.name]
                if self.hints and stay.pod.uid in self.flight:
                    continue
                stay.attempts += 1
                self.cycle += 1
                if self.hints:
                    self.flight.append(stay.pod.uid)
                    self.held[stay.pod.uid] = stay
                return stay
        return None

    def give_back(self, stay: Stay, cycle: int, plugins: set[str], pending: set[str]) -> bool:
        """End a cycle with a failure; False if the pod is already in a sub-queue."""
        name = stay.pod.name
        homes = (self.unschedulable, self.active, self.backoff, self.error_backoff)
        present = any(name in queue for queue in homes)
        if not present:
            stay.plugins, stay.pending = set(plugins), set(pending)
            if stay.refused_by:
                stay.refusals, stay.errors = stay.refusals + 1, 0
            else:
                stay.errors += 1
            stay.since_ns, stay.sequence = self.now_ns, self.next_sequence()
            self.put_back(stay, cycle)
        self.done(stay.pod.uid)
        return not present

    def put_back(self, stay: Stay, cycle: int) -> None:
        """Requeue a failed pod by the events since its pop, or by the move counter."""
        if not self.hints:
            if self.move_cycle >= cycle or not stay.refused_by:
                self.to_backoff(stay)
            else:
                self.unschedulable[stay.pod.name] = stay
            return
        verdict = 0
        if stay.pod.uid not in self.flight or not stay.refused_by:
            verdict = 1
        else:
            after = self.flight[self.flight.index(stay.pod.uid) + 1 :]
            for event in after:
                if isinstance(event, tuple):
                    verdict = max(verdict, self.verdict(stay, *event))
        self.requeue(stay, verdict)

    def undo(self, stay: Stay) -> None:
        """Undo a pop."""
        self.done(stay.pod.uid)
        stay.attempts -= 1
        homes = (self.unschedulable, self.active, self.backoff, self.error_backoff)
        if not any(stay.pod.name in queue for queue in homes):
            self.to_active(stay, "")

    def done(self, uid: str) -> None:
        """End a cycle."""
        if uid in self.flight:
            self.flight.remove(uid)
        while self.flight and isinstance(self.flight[0], tuple):
            self.flight.pop(0)

    def move(self, event: str, stays: list[Stay] | None = None) -> None:
        """Tell of an event."""
        interested = self.interest(event)
        if not interested:
            return
        for stay in list(self.unschedulable.values()) if stays is None else stays:
            if stay.gate and (event == "UnschedulableTimeout" or stay.gate not in interested):
                continue
            verdict = self.verdict(stay, event, None)
            if verdict:
                del self.unschedulable[stay.pod.name]
                self.requeue(stay, verdict)
        self.move_cycle = self.cycle
        if self.hints and any(isinstance(entry, str) for entry in self.flight):
            self.flight.append((event, None))

    def activate(self, pod: QueuedPod) -> None:
        """Ask for a pod at once."""
        stay, from_backoff = self.unschedulable.get(pod.name), False
        if stay is None:
            for queue in (self.backoff, self.error_backoff):
                if stay is None:
                    stay, from_backoff = queue.pop(pod.name, None), True
        if stay is not None and self.to_active(stay, "", from_backoff=from_backoff):
            return
        if self.hints and pod.uid in self.flight:
            self.flight.append(("ForceActivate", pod))
        self.move_cycle = self.cycle

    def flush_backoff(self) -> None:
        """Tick the second."""
        for queue in (self.backoff, self.error_backoff):
            for stay in [pod for pod in queue.values() if not self.backs_off(pod)]:
                del queue[stay.pod.name]
                self.to_active(stay, "", from_backoff=True)

    def flush_leftover(self) -> None:
        """Tick the half minute."""
        late = [s for s in self.unschedulable.values() if self.now_ns - s.since_ns > LEFTOVER_NS]
        if late:
            self.move("UnschedulableTimeout", late)

    # How they do it.

    def verdict(self, stay: Stay, event: str, new: object) -> int:
        """Return 0 for skip, 1 for after the backoff, 2 for at once."""
        if not stay.refused_by:
            return 1
        if event in {"UnschedulableTimeout", "ForceActivate"}:
            return int(new is None or getattr(new, "uid", "") == stay.pod.uid)
        willing = {
            plugin
            for plugin in stay.refused_by & self.interest(event)
            if self.hint(plugin, stay.pod, new)
        }
        if willing & stay.pending:
            return 2
        return int(bool(willing))

    def requeue(self, stay: Stay, verdict: int) -> str:
        """Put a stay where its verdict sends it; return where it is."""
        if verdict == 0:
            self.unschedulable[stay.pod.name] = stay
            return "unschedulable"
        if verdict == 1 and self.backs_off(stay):
            return "backoff" if self.to_backoff(stay) else "unschedulable"
        return "active" if self.to_active(stay, "") else "unschedulable"

    def to_active(self, stay: Stay, event: str, *, from_backoff: bool = False) -> bool:
        """Make a stay active unless it is held."""
        del event
        if not (from_backoff and self.pops_backoff):
            self.pre_enqueue(stay)
        name = stay.pod.name
        if stay.gate:
            homes = (self.active, self.backoff, self.error_backoff, self.unschedulable)
            if not any(name in queue for queue in homes):
                self.unschedulable[name] = stay
            return False
        if stay.first_ns is None:
            stay.first_ns = self.now_ns
        for queue in (self.unschedulable, self.backoff, self.error_backoff):
            queue.pop(name, None)
        self.active[name] = stay
        return True

    def to_backoff(self, stay: Stay) -> bool:
        """Let a stay back off unless it is held."""
        name = stay.pod.name
        if self.pops_backoff:
            self.pre_enqueue(stay)
            if stay.gate:
                self.unschedulable.setdefault(name, stay)
                return False
        self.unschedulable.pop(name, None)
        into = self.backoff if stay.refused_by else self.error_backoff
        into[name] = stay
        return True

    def pre_enqueue(self, stay: Stay) -> None:
        """Ask the gates, the one that held it first."""
        gates = stay.pod.gates
        if not gates:
            stay.gate = ""
            return
        stay.gate = stay.gate if stay.gate in gates else gates[0]
        stay.plugins.add(stay.gate)

    def expiry_ns(self, stay: Stay) -> int:
        """Return when the backoff ends, doubled step by step; -1 for no backoff."""
        failures = stay.errors or stay.refusals
        if not failures:
            return -1
        wait_s = INITIAL_S
        for _ in range(failures - 1):
            wait_s *= 2
        end_ns = stay.since_ns + min(wait_s, MAX_S) * SECOND_NS
        return end_ns // SECOND_NS * SECOND_NS if self.pops_backoff else end_ns

    def backs_off(self, stay: Stay) -> bool:
        """Return whether a stay has to wait still."""
        now_ns = self.now_ns // SECOND_NS * SECOND_NS if self.pops_backoff else self.now_ns
        return self.expiry_ns(stay) >= now_ns

    def in_order(self, queue: dict[str, Stay]) -> Iterator[Stay]:
        """Yield a sub-queue's stays in its order."""
        ranked = queue is self.active or (queue is self.backoff and self.pops_backoff)
        expiry = (lambda _stay: 0) if queue is self.active else self.expiry_ns
        yield from sorted(
            queue.values(),
            key=lambda s: (
                expiry(s),
                *((-s.pod.priority, s.since_ns) if ranked else ()),
                s.sequence,
            ),
        )

    def sequences(self) -> Iterator[int]:
        """Yield the place in the order of arrival of each stay, for each sub-queue that has it."""
        for queue in (self.active, self.backoff, self.error_backoff, self.unschedulable):
            yield from (stay.sequence for stay in queue.values())

    def fresh(self, pod: QueuedPod) -> Stay:
        """Return the stay of a pod that is new to the queue."""
        return Stay(pod=pod, since_ns=self.now_ns, sequence=self.next_sequence())

    def next_sequence(self) -> int:
        """Count an arrival."""
        self.sequence += 1
        return self.sequence
