"""Lengths of time for people to read."""

from __future__ import annotations

_SECOND_NS = 1_000_000_000
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400


def wall(duration_ns: int) -> str:
    """Return a measured time with three digits, such as "850 ns", "12.3 us" or "1.04 s"."""
    value = float(duration_ns)
    for unit in ("ns", "us", "ms"):
        if value < 999.5:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:,.2f} s" if value < 100 else f"{value:,.0f} s"


def simulated(duration_ns: int) -> str:
    """Return a simulated time as Kubernetes writes it, such as "0s", "1.5s", "1h30m" or "2d4h".

    From a minute on, the two largest units are shown, and the second is rounded down.
    """
    if duration_ns < _MINUTE_S * _SECOND_NS:
        return f"{duration_ns / _SECOND_NS:.3f}".rstrip("0").rstrip(".") + "s"
    seconds = duration_ns // _SECOND_NS
    if seconds < _HOUR_S:
        return _two(seconds // _MINUTE_S, "m", seconds % _MINUTE_S, "s")
    if seconds < _DAY_S:
        return _two(seconds // _HOUR_S, "h", seconds % _HOUR_S // _MINUTE_S, "m")
    return _two(seconds // _DAY_S, "d", seconds % _DAY_S // _HOUR_S, "h")


def age(duration_ns: int) -> str:
    """Return an age as kubectl's tables show it.

    Source: kubernetes v1.34 apimachinery pkg/util/duration/duration.go, HumanDuration.
    """
    seconds = duration_ns // _SECOND_NS
    if seconds < 0:
        return "0s" if seconds >= -2 else "<invalid>"
    minutes, hours, days = seconds // _MINUTE_S, seconds // _HOUR_S, seconds // _DAY_S
    if seconds < 2 * _MINUTE_S:
        return f"{seconds}s"
    if minutes < 10:
        return _two(minutes, "m", seconds % _MINUTE_S, "s")
    if minutes < 3 * 60:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return _two(days, "d", hours % 24, "h")
    if days < 365 * 2:
        return f"{days}d"
    if days < 365 * 8:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"
