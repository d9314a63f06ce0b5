"""Which pods have spans, and their ids."""

from __future__ import annotations

import pytest

from services.telemetry.span import Sampling


@pytest.mark.parametrize(
    ("text", "share"), [("off", 0.0), ("all", 1.0), ("1%", 0.01), ("0.5%", 0.005), ("50%", 0.5)]
)
def test_a_choice_is_read_and_printed_alike(text: str, share: float) -> None:
    """The summary shows what was requested."""
    sampling = Sampling.parse(text)
    assert sampling.share == pytest.approx(share)
    assert str(sampling) == text


@pytest.mark.parametrize("text", ["", "some", "1", "101%", "-1%", "nan%", "%"])
def test_anything_else_is_refused(text: str) -> None:
    """The error has the accepted forms."""
    with pytest.raises(ValueError, match="is not"):
        Sampling.parse(text)


def test_all_keeps_every_pod_and_off_none() -> None:
    """The ends of the scale are exact."""
    names = [f"uid-{number}" for number in range(500)]
    assert all(Sampling(1.0).pick(1, name) for name in names)
    assert not any(Sampling(0.0).pick(1, name) for name in names)


def test_a_share_keeps_about_so_many_and_the_same_ones_again() -> None:
    """The sampled pods depend on seed and UID; a larger share includes them."""
    names = [f"uid-{number}" for number in range(5000)]
    few = {name for name in names if Sampling(0.1).pick(1, name)}
    assert 400 < len(few) < 600
    assert few == {name for name in names if Sampling(0.1).pick(1, name)}
    assert few <= {name for name in names if Sampling(0.3).pick(1, name)}
    assert few != {name for name in names if Sampling(0.1).pick(2, name)}


def test_ids_are_valid_and_differ_within_a_trace() -> None:
    """A trace id has 32 digits, a span id 16, and neither is zero."""
    ids = Sampling(1.0).pick(0, "uid")
    assert ids is not None
    spans = {ids.next_span_id() for _ in range(100)}
    assert len(spans) == 100
    assert len({span[:7] for span in spans}) == 100  # so much of it tools show
    assert len(ids.trace_id) == 32
    assert all(len(span) == 16 and int(span, 16) for span in spans)
