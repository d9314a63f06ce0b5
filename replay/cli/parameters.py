"""Types of options that several commands take."""

from __future__ import annotations

import re
from typing import Any

import click

from services.telemetry.sampling import Sampling

_UNITS_NS = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60 * 1_000_000_000,
    "h": 3600 * 1_000_000_000,
    "d": 86_400 * 1_000_000_000,
}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|ms|s|m|h|d)")


class Duration(click.ParamType[int]):
    """A length of time such as "1h30m", "2.5s" or "500ms"; its value is in ns."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return ns."""
        if isinstance(value, int):
            return value
        total_ns, end = 0.0, 0
        for match in _PART.finditer(value):
            if match.start() != end:
                break
            total_ns += float(match[1]) * _UNITS_NS[match[2]]
            end = match.end()
        if end != len(value) or not value:
            self.fail(f"{value!r} is no length of time; write 90s, 1h30m or 500ms", param, ctx)
        return round(total_ns)


class Share(click.ParamType[Sampling]):
    """A share of the pods: "off", "all" or a percentage such as "1%"."""

    name = "off|all|PERCENT"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Sampling:
        """Return the share."""
        if isinstance(value, Sampling):
            return value
        try:
            return Sampling.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION = Duration()
SHARE = Share()
