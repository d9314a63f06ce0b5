"""A checkpoint has everything that a part of a replay keeps: its class annotates it."""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from collections import deque
from collections.abc import Iterator
from enum import Enum
from typing import Any

import pytest
from google.protobuf.message import Message

from replay.results.recorder import RecorderPosition
from replay.state_codec import (
    UnreadableStateError,
    annotated,
    dump_parts,
    load,
    parts,
    restore_parts,
)
from replay.world.ahead.look_ahead import LookAhead
from replay.world.loop.replay import Replay
from replay.world.models import Models
from reprieve.scheduler.v1beta1 import scheduler_pb2

NOT_KEPT = {
    ("RecordSource", "_records"): "the trace is read again",
    ("RecordSource", "_coming"): "the trace is read again",
    ("AdmittedAhead", "_requested"): "pods of records that were read ahead are admitted again",
    ("RoundStream", "last_events"): "of the present instant, for an error's text",
    ("OutcomeExecutor", "_mistake"): "of the outcomes that are carried out now",
    ("Windows", "_drafts"): "of the present window",
    ("Windows", "_planned"): "of the present window",
    ("Windows", "_names"): "of the present window",
    ("RoundStream", "scheduler"): "who receives its messages, as the run is made",
    ("RoundStream", "may_wait"): "the same",
    ("RoundStream", "scheduler_restarted"): "the same",
    ("RoundStream", "_audit"): "opened with the scheduler in force",
    ("Cluster", "_scheduler_names"): "asked of the scheduler in force",
    ("Replay", "_restarts_ns"): "of the settings",
    ("ControllerManager", "_acting"): "the controllers by their actions, as they are made",
    ("Workloads", "_pod_controllers"): "the other controllers, as they are made",
    ("PodLifecycle", "_specs"): "equal specs are made again when they are needed",
    ("Cluster", "changed_by_node"): "for the sums of kubelets, which are made again",
    ("KubeletAdmission", "_specs"): "the same",
    ("KubeletAdmission", "_claims"): "follow from the specs",
    ("KubeletAdmission", "_nodes"): "sums follow from the nodes and the pods on them",
}
"""The attributes of parts that change and are not saved, and why they need not be."""


class _Silent:
    """A service and a recorder, of which nothing is asked here."""

    takes_windows = False

    def send_round(self, round_: scheduler_pb2.Round, window: object = ()) -> None:
        """Never called."""

    receive_outcomes = round_sent = outcomes = apply = send_round


def _replay() -> Replay:
    silent: Any = _Silent()
    replay = Replay(silent, silent, models=Models(), sink=lambda _: None, observer=silent)
    replay.send_through(LookAhead(replay, silent))
    return replay


def test_parts_have_paths() -> None:
    """By which what they keep is found again."""
    paths = [path for path, _ in parts(_replay())]
    assert len(paths) == len(set(paths)) > 40
    assert {
        "",
        "cluster",
        "controllers.controllers.NodePressure.memory._kills",
        "controllers.controllers.Workloads._jobs",
    } < set(paths)


def _set_later(cls: type) -> Iterator[str]:
    """Yield the attributes that a class's methods but its constructor set on its objects."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    for method in ast.walk(tree):
        if isinstance(method, ast.FunctionDef) and method.name != "__init__":
            for node in ast.walk(method):
                match node:
                    case ast.Attribute(value=ast.Name("self"), attr=name, ctx=ast.Store()):
                        yield name


def _changes(value: object) -> bool:
    """Return whether a value may change without being replaced."""
    cls: Any = type(value)
    frozen = hasattr(cls, "__dataclass_params__") and cls.__dataclass_params__.frozen
    if isinstance(value, list | dict | set | deque | bytearray | Message):
        return True
    is_fixed = isinstance(value, int | str | float | bytes | tuple | frozenset | Enum | None)
    is_outside = isinstance(value, _Silent) or callable(value)
    return not (is_fixed or is_outside or frozen)


@pytest.mark.parametrize(("path", "part"), list(parts(_replay())), ids=itertools.count())
def test_all_saved_fields_of_a_part_are_annotated(path: str, part: object) -> None:
    """Or is another part, or never changes, or is known not to be needed."""
    cls, known = type(part), {id(other) for _, other in parts(part)}
    may_change = {
        name for name, value in vars(part).items() if id(value) not in known and _changes(value)
    }
    may_change |= set(_set_later(cls)) & vars(part).keys()
    excepted = {name for kind, name in NOT_KEPT if kind == cls.__name__}
    assert may_change - annotated(cls).keys() - excepted == set(), path
    assert annotated(cls).keys() <= vars(part).keys()
    assert not annotated(cls).keys() & excepted


def test_every_exception_is_an_attribute() -> None:
    """So that the list does not outlive what it is about."""
    there = {(type(part).__name__, name) for _, part in parts(_replay()) for name in vars(part)}
    assert set(NOT_KEPT) <= there


def test_all_types_that_a_state_may_have_can_be_saved() -> None:
    """Those of values within values, too: a codec is made of all of them at once."""
    restore_parts(_replay(), dump_parts(_replay()))
    with pytest.raises(UnreadableStateError):
        load(RecorderPosition, b"")


def test_the_parts_of_another_version_are_refused() -> None:
    """By their paths and their number."""

    class Whole:
        """A replay with one part."""

        def __init__(self, name: str, part: object) -> None:
            setattr(self, name, part)

    data = dump_parts(Whole("timeline", _replay().timeline))
    with pytest.raises(UnreadableStateError, match="'timeline' in the place of 'clock'"):
        restore_parts(Whole("clock", _replay().timeline), data)
    with pytest.raises(UnreadableStateError, match="must be a list of"):
        restore_parts(_replay(), data)
