"""Sizes that a trace gives in shares of a machine, as whole units."""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal, InvalidOperation

from replay.importers.options import ImportOptions

SHARE_MAX = 1000
"""Machines that a share may be at most: what is larger is no share."""


def decimal(text: str) -> Decimal | None:
    """Return a number that is finite; None where the text is none."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def scaled(share: Decimal, unit: int) -> int:
    """Return `share` of `unit`, rounded up; equal shares stay equal, so that what fitted fits."""
    return int((share * unit).to_integral_value(ROUND_CEILING))


def amounts(
    cpu: Decimal | None, memory: Decimal | None, options: ImportOptions, percent: int = 100
) -> dict[str, str]:
    """Return quantities of the shares that are known, `percent` of them."""
    factor = Decimal(percent) / 100
    result = {}
    if cpu is not None:
        result["cpu"] = f"{scaled(cpu * factor, options.unit_cpu_milli)}m"
    if memory is not None:
        result["memory"] = str(scaled(memory * factor, options.unit_memory_bytes))
    return result
