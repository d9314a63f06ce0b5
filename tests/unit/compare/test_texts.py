"""Messages of failed attempts across versions."""

from __future__ import annotations

from replay.compare.verdict import message_reasons

OLD = (
    "0/9 nodes are available: 1 node(s) had untolerated taint {a: b}, 2 node(s) had untolerated "
    "taint {c: }, 6 Insufficient cpu. preemption: 0/9 nodes are available: 9 No preemption victims "
    "found for incoming pod."
)
NEW = (
    "0/9 nodes are available: 3 node(s) had untolerated taint(s), 6 Insufficient cpu. no new "
    "claims to deallocate, preemption: 0/9 nodes are available: 9 No preemption victims found for "
    "incoming pod."
)


def test_versions_wordings_of_one_refusal_are_equal() -> None:
    """Taints without their keys, and claims, which came after v1.34."""
    assert message_reasons(OLD) == message_reasons(NEW)


def test_refusals_with_different_counts_differ() -> None:
    """Of the filters as of preemption."""
    assert message_reasons(OLD) != message_reasons(OLD.replace("6 Insufficient", "5 Insufficient"))
    assert message_reasons(OLD) != message_reasons(
        OLD.replace("9 No preemption", "8 No preemption")
    )


def test_the_order_of_reasons_does_not_matter() -> None:
    """It follows from the texts, which versions have changed."""
    first = "0/3 nodes are available: 1 Insufficient cpu, 2 Too many pods."
    second = "0/3 nodes are available: 2 Too many pods, 1 Insufficient cpu."
    assert message_reasons(first) == message_reasons(second)


def test_a_reason_keeps_its_commas() -> None:
    """Only a count begins another one."""
    found = message_reasons("0/2 nodes are available: 2 node(s) lack this, and that.")
    assert dict(found.filters) == {"nodes": 2, "node(s) lack this, and that": 2}


def test_why_preemption_was_not_tried_counts() -> None:
    """A text that is no fit error is compared as it is."""
    fit = "0/1 nodes are available: 1 Insufficient cpu."
    never = f"{fit} preemption: not eligible due to preemptionPolicy=Never."
    assert message_reasons(never).filters == message_reasons(fit).filters
    assert message_reasons(never) != message_reasons(fit)
