"""The timeline: order, replacement, cancelling, idle actions."""

from __future__ import annotations

from replay.world.timeline import Action, ActionKind, Timeline


def test_actions_come_by_time_and_then_in_the_order_of_planning() -> None:
    """A heap breaks ties by when an action was planned."""
    timeline = Timeline()
    timeline.plan(5, ActionKind.START, "late")
    timeline.plan(3, ActionKind.START, "b")
    timeline.plan(3, ActionKind.FINISH, "a")
    assert timeline.next_ns() == 3
    assert timeline.take_due(3) == [Action(ActionKind.START, "b"), Action(ActionKind.FINISH, "a")]
    assert timeline.take_due(4) == []
    assert timeline.take_due(9) == [Action(ActionKind.START, "late")]
    assert timeline.next_ns() is None


def test_an_object_has_one_action_of_a_kind_to_come() -> None:
    """Planning again moves the action; another kind of the same object stays."""
    timeline = Timeline()
    timeline.plan(5, ActionKind.STOPPED, "p")
    timeline.plan(4, ActionKind.FINISH, "p")
    timeline.plan(2, ActionKind.STOPPED, "p")
    assert len(timeline) == 2
    assert timeline.planned_ns(ActionKind.STOPPED, "p") == 2
    assert timeline.take_due(9) == [Action(ActionKind.STOPPED, "p"), Action(ActionKind.FINISH, "p")]
    assert len(timeline) == 0


def test_what_is_cancelled_never_comes_and_leaves_no_moment_behind() -> None:
    """So a pod that has gone does not keep a replay alive."""
    timeline = Timeline()
    timeline.plan(2, ActionKind.FINISH, "p")
    timeline.plan(3, ActionKind.FINISH, "p")
    timeline.plan(7, ActionKind.STEP, "p")
    timeline.cancel_pod("p")
    timeline.cancel(ActionKind.RECHECK, "unknown")
    assert timeline.next_ns() == 7
    assert timeline.take_due(9) == [Action(ActionKind.STEP, "p")]
    assert timeline.is_idle


def test_a_timeline_is_idle_while_only_idle_actions_are_to_come() -> None:
    """An action that is planned again for the same time takes on the new wish."""
    timeline = Timeline()
    assert timeline.is_idle
    timeline.plan(2, ActionKind.STEP, "n", idle=True)
    assert timeline.is_idle
    timeline.plan(2, ActionKind.STEP, "n")
    assert not timeline.is_idle
    timeline.plan(2, ActionKind.STEP, "n", idle=True)
    timeline.plan(4, ActionKind.STEP, "n", idle=True)
    assert timeline.is_idle
    timeline.plan(1, ActionKind.START, "p")
    assert not timeline.is_idle
    timeline.take_due(1)
    assert timeline.is_idle
    timeline.take_due(4)
    assert timeline.is_idle


def test_cancelled_actions_do_not_pile_up() -> None:
    """However late they would have come; those that are left come in their order."""
    timeline = Timeline()
    for number in range(10_000):
        timeline.plan(10**9 + number, ActionKind.FINISH, str(number))
        if number not in {3, 7_000}:
            timeline.cancel(ActionKind.FINISH, str(number))
    assert len(timeline._heap) < 3_000
    assert [action.key for action in timeline.take_due(2 * 10**9)] == ["3", "7000"]


def test_eviction_manager_steps_precede_other_actions_of_their_instant() -> None:
    """So that it sees which nodes are stepped; all else keeps the order of planning."""
    timeline = Timeline()
    planned = [
        (ActionKind.USAGE, "n"),
        (ActionKind.STEP, "m"),
        (ActionKind.FINISH, "uid-p"),
        (ActionKind.STEP, "n"),
    ]
    for kind, key in planned:
        timeline.plan(10, kind, key)
    assert timeline.take_due(10) == [planned[1], planned[3], planned[0], planned[2]]
