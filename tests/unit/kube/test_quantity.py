"""Quantities read, round and print as an API server's do."""

from __future__ import annotations

import pytest

from services.kube import quantity
from services.kube.quantity import Quantity, QuantityError


@pytest.mark.parametrize(
    ("text", "milli", "value"),
    [
        ("0", 0, 0),
        ("500m", 500, 1),
        ("2", 2000, 2),
        ("1.5", 1500, 2),
        ("0.5m", 1, 1),
        ("3920000000n", 3920, 4),
        ("1Ki", 1_024_000, 1024),
        ("1.5Gi", 1_610_612_736_000, 1_610_612_736),
        ("1k", 1_000_000, 1000),
        ("2e3", 2_000_000, 2000),
        ("1E", 2**63 - 1, 10**18),
        (".5", 500, 1),
        ("5.", 5000, 5),
        ("-1500m", -1500, -2),
        ("1e-400", 1, 1),
        ("0e400", 0, 0),
    ],
)
def test_an_amount_rounds_away_from_zero(text: str, milli: int, value: int) -> None:
    """MilliValue and Value never count less than was requested."""
    assert (quantity.milli(text), quantity.value(text)) == (milli, value)


@pytest.mark.parametrize(
    "text", ["", ".", "abc", "1e", "1.5.5", " 1", "1 ", "1K", "1e3Ki", "1e9999999999", "٣"]
)
def test_a_text_that_is_not_a_quantity_is_refused(text: str) -> None:
    """The refusal shows the text."""
    with pytest.raises(QuantityError) as refused:
        quantity.parse(text)
    assert repr(text) in str(refused.value)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("10000", "10k"),
        ("512Ki", "512Ki"),
        ("0.5Ki", "512"),
        ("1.1Ki", "1126400m"),
        ("1e3", "1e3"),
        ("0Mi", "0"),
    ],
)
def test_a_quantity_prints_canonically(text: str, canonical: str) -> None:
    """The largest suffix that keeps an integer; binary only where nothing is lost."""
    assert str(quantity.parse(text)) == canonical


def test_an_endless_text_is_not_a_quantity() -> None:
    """It is refused before its digits are read."""
    with pytest.raises(QuantityError, match="too long"):
        quantity.parse("9" * 5000)


def test_an_amount_beyond_64_bits_is_capped() -> None:
    """As upstream's parser does."""
    assert quantity.value("100E") == 2**63 - 1


@pytest.mark.parametrize("text", ["9223372036854775807", "9E", "1e18", "1e400", "1e2147483647"])
def test_what_exceeds_64_bits_saturates(text: str) -> None:
    """Thousandths saturate earlier than whole units; negative values saturate, too."""
    assert quantity.milli(text) == quantity.INT64_MAX
    assert quantity.milli(f"-{text}") == -quantity.INT64_MAX - 1
    assert quantity.value(text) >= 10**18


def test_digits_after_the_point_count_against_an_exponent() -> None:
    """However many there are, as long as the text is not too long."""
    assert quantity.value(f"0.{'0' * 900}1e901") == 1
    assert quantity.value(f"{'9' * 900}e-901") == 1


def test_whole_units_make_a_quantity() -> None:
    """from_value is the way back from value."""
    assert Quantity.from_value(3).value() == 3
