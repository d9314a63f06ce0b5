"""Quantities ("500m", "128Mi") as Kubernetes writes them.

A quantity is an integer count of 1e-9 units, and the format in which it was written, for printing.
Fractions finer than 1e-9 are rounded away from zero, as by upstream's parser. Numbers saturate at
64 bits, as in upstream's Value and MilliValue since kubernetes#141305 (2026); up to v1.36, upstream
returned 0 or wrapped around.

Source: kubernetes v1.34 apimachinery pkg/api/resource, quantity.go and suffix.go; of that change
math.go, positiveScaleInt64.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

NANO = 1_000_000_000
INT64_MAX = 2**63 - 1
AMOUNT_MAX = 2**56 - 1
"""The largest amount of a resource that a scheduler counts: 72 PB, or 72 * 10^12 cores.

A larger amount of a node or a pod counts as this one, so that neither a score (100 * amount) nor a
sum can exceed 64 bits. Upstream's scores wrap around there.
"""

_LENGTH_MAX = 1000
_EXPONENT_MAX = 2 * _LENGTH_MAX
_EXPONENTS = range(-(2**31), 2**31)
_NUMBER = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?([A-Za-z]*|[eE][+-]?\d+)", re.ASCII)
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX = {power: suffix for suffix, power in _BINARY.items()}


class QuantityError(ValueError):
    """A text that is not a quantity."""


class Format(Enum):
    """The format of a quantity: "1Gi", "1G" or "1e9"."""

    BINARY_SI = "BinarySI"
    DECIMAL_SI = "DecimalSI"
    DECIMAL_EXPONENT = "DecimalExponent"


@dataclass(frozen=True, slots=True)
class Quantity:
    """An exact amount: `nano` units of 1e-9, printed in `format`."""

    nano: int
    format: Format = Format.DECIMAL_SI

    @classmethod
    def from_value(cls, value: int, format: Format = Format.DECIMAL_SI) -> Quantity:  # noqa: A002 - upstream's word
        """Return the quantity of `value` whole units."""
        return cls(value * NANO, format)

    def value(self) -> int:
        """Return whole units, rounded away from zero (upstream's Quantity.Value): an int64."""
        return _scaled(self.nano, NANO)

    def milli_value(self) -> int:
        """Return thousandths, rounded away from zero (upstream's Quantity.MilliValue): an int64."""
        return _scaled(self.nano, NANO // 1000)

    def __str__(self) -> str:
        """Print canonically: the largest suffix that keeps the mantissa an integer."""
        whole, fraction = divmod(self.nano, NANO)
        if self.format is Format.BINARY_SI and abs(whole) >= 1024 and not fraction:
            return _binary_text(whole)
        return _decimal_text(self.nano, exponent=self.format is Format.DECIMAL_EXPONENT)


@lru_cache(maxsize=65536)
def parse(text: str) -> Quantity:
    """Parse a quantity as an API server does.

    Raises QuantityError, with the text, if it is not a quantity.
    """
    if len(text) > _LENGTH_MAX:
        raise QuantityError(f"{text[:20]!r}... is not a quantity: it is too long")
    match = _NUMBER.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        raise QuantityError(
            f"{text!r} is not a quantity: write a number with an optional suffix, "
            'such as "500m", "2", "128Mi" or "1.5G"'
        )
    sign, whole, fraction, suffix = match[1], match[2], match[3] or "", match[4]
    mantissa = int(whole + fraction or "0")
    factor, divisor, style = _scale(suffix, text)
    nano = _divide_up(mantissa * factor * NANO, divisor * 10 ** len(fraction))
    nano = min(nano, INT64_MAX * NANO)
    return Quantity(-nano if sign == "-" else nano, style)


def milli(text: str) -> int:
    """Return the text's value in thousandths, the unit of CPU requests."""
    return parse(text).milli_value()


def value(text: str) -> int:
    """Return the text's value in whole units, such as bytes or pods."""
    return parse(text).value()


def is_same_amount(one: str, other: str) -> bool:
    """Return whether two quantities are equal, such as "0.5" and "500m"; False for other texts."""
    try:
        return parse(one).nano == parse(other).nano
    except QuantityError:
        return False


def saturated(number: int) -> int:
    """Return the number, or the nearest one that fits into 64 bits."""
    return max(-INT64_MAX - 1, min(number, INT64_MAX))


def _scale(suffix: str, text: str) -> tuple[int, int, Format]:
    if suffix in _BINARY:
        return 1024 ** _BINARY[suffix], 1, Format.BINARY_SI
    if suffix in _DECIMAL:
        exponent, style = _DECIMAL[suffix], Format.DECIMAL_SI
    elif suffix[:1] in {"e", "E"} and suffix[1:].lstrip("+-").isdigit():
        exponent, style = _exponent(int(suffix[1:]), text), Format.DECIMAL_EXPONENT
    else:
        raise QuantityError(f"{text!r} is not a quantity: unknown suffix {suffix!r}")
    return (10**exponent, 1, style) if exponent >= 0 else (1, 10**-exponent, style)


def _exponent(number: int, text: str) -> int:
    """Return the exponent, limited to a value beyond which a text's digits make no difference."""
    if number not in _EXPONENTS:
        raise QuantityError(f"{text!r} is not a quantity: its exponent is out of range")
    return max(-_EXPONENT_MAX, min(number, _EXPONENT_MAX))


def _divide_up(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


def _scaled(nano: int, unit: int) -> int:
    magnitude = _divide_up(abs(nano), unit)
    return saturated(-magnitude if nano < 0 else magnitude)


def _binary_text(amount: int) -> str:
    power = 0
    while amount and amount % 1024 == 0 and power < 6:
        amount, power = amount // 1024, power + 1
    return f"{amount}{_BINARY_SUFFIX.get(power, '')}"


def _decimal_text(nano: int, *, exponent: bool) -> str:
    if nano == 0:
        return "0"
    mantissa, power = nano, -9
    while mantissa % 1000 == 0 and power < 18:
        mantissa, power = mantissa // 1000, power + 3
    if exponent:
        return f"{mantissa}e{power}" if power else str(mantissa)
    return f"{mantissa}{_DECIMAL_SUFFIX[power]}"
