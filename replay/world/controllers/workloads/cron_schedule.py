"""The schedules of CronJobs: how they are read, and the times that match.

A schedule has five fields: minute, hour, day of the month, month, day of the week (0 to 6, 0 is
Sunday; names of months and days are allowed), with "*", "?", lists, ranges and steps; or it is a
word such as "@hourly", or "@every 90m". Where both day fields are restricted, a day that matches
either of them matches. A local time that a clock change skips does not match; one that occurs twice
matches twice.

Source: github.com/robfig/cron/v3 parser.go (ParseStandard), spec.go (Next), as kubernetes v1.34's
CronJob controller uses it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import chain
from zoneinfo import ZoneInfo

_WORDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTH_NAMES = "jan feb mar apr may jun jul aug sep oct nov dec"
_DAY_NAMES = "sun mon tue wed thu fri sat"
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES.split(), 1)}
_DAYS = {name: number for number, name in enumerate(_DAY_NAMES.split())}
_EVERY = re.compile(r"(\d+(?:\.\d+)?)(h|m|s)")
_SECONDS = {"h": 3600, "m": 60, "s": 1}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEARS_AHEAD = 5
_DAY_S = 86_400


class ScheduleError(ValueError):
    """An invalid schedule; the text is for users."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A parsed schedule; with `every_s` above 0, that interval from the last time and no fields."""

    minutes: tuple[int, ...] = ()
    hours: tuple[int, ...] = ()
    days: frozenset[int] = frozenset()
    months: frozenset[int] = frozenset()
    weekdays: frozenset[int] = frozenset()
    either_day: bool = False
    every_s: int = 0
    zone: ZoneInfo | None = None

    def after(self, at_s: int) -> int | None:
        """Return the first time after `at_s`, s since the Unix epoch; None within five years."""
        if self.every_s:
            return at_s + self.every_s
        first = self._local(at_s).date()
        for ahead in range(366 * _YEARS_AHEAD):
            day = first + timedelta(days=ahead)
            if self._is_day(day):
                later = min((time_s for time_s in self._times(day) if time_s > at_s), default=None)
                if later is not None:
                    return later
        return None

    def latest(self, after_s: int, until_s: int) -> int | None:
        """Return the last time after `after_s` and up to `until_s`, None if none."""
        if self.every_s:
            number = (until_s - after_s) // self.every_s
            return after_s + number * self.every_s if number > 0 else None
        last, first = self._local(until_s).date(), self._local(after_s).date()
        for back in range((last - first).days + 1):
            day = last - timedelta(days=back)
            if self._is_day(day):
                times = (time_s for time_s in self._times(day) if after_s < time_s <= until_s)
                last_s = max(times, default=None)
                if last_s is not None:
                    return last_s
        return None

    def _local(self, at_s: int) -> datetime:
        return (_EPOCH + timedelta(seconds=at_s)).astimezone(self.zone or UTC)

    def _is_day(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        met = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return any(met) if self.either_day else all(met)

    def _times(self, day: date) -> Iterator[int]:
        zone = self.zone or UTC
        for hour in self.hours:
            for minute in self.minutes:
                for fold in (0, 1):
                    local = datetime(
                        day.year, day.month, day.day, hour, minute, tzinfo=zone, fold=fold
                    )
                    # A time that a clock change skips comes back as another one.
                    there = local.astimezone(UTC)
                    back = there.astimezone(zone)
                    if (back.hour, back.minute, back.fold) == (hour, minute, fold):
                        yield (there - _EPOCH) // timedelta(seconds=1)


def parse(text: str, zone: str = "") -> Schedule:
    """Parse a schedule; `zone` is an IANA name, "" for UTC. Raises ScheduleError."""
    text = _WORDS.get(text.strip(), text.strip())
    where = _zone(zone)
    if text.startswith("@every "):
        return Schedule(every_s=_every(text), zone=where)
    fields = text.split()
    if len(fields) != 5:
        shape = "a schedule has five, or is a word such as @daily"
        raise ScheduleError(f"{text!r} has {len(fields)} fields: {shape}")
    minutes, hours = _numbers(fields[0], 0, 59), _numbers(fields[1], 0, 23)
    return Schedule(
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=_numbers(fields[2], 1, 31),
        months=_numbers(fields[3], 1, 12, _MONTHS),
        weekdays=_numbers(fields[4], 0, 6, _DAYS),
        either_day=fields[2][0] not in "*?" and fields[4][0] not in "*?",
        zone=where,
    )


def _zone(name: str) -> ZoneInfo | None:
    if not name:
        return None
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError) as error:
        raise ScheduleError(f"{name!r} is not a time zone of this machine's database") from error


def _every(text: str) -> int:
    length = text.removeprefix("@every ").strip()
    parts = _EVERY.findall(length)
    if not parts or "".join(map("".join, parts)) != length:
        raise ScheduleError(f"{length!r} is not a duration; write @every 1h30m")
    return max(1, int(sum(float(number) * _SECONDS[unit] for number, unit in parts)))


def _numbers(
    field: str, low: int, high: int, names: dict[str, int] | None = None
) -> frozenset[int]:
    ranges = (_range(part, low, high, names or {}) for part in field.split(","))
    return frozenset(chain.from_iterable(ranges))


def _range(part: str, low: int, high: int, names: dict[str, int]) -> range:
    body, slash, step_text = part.partition("/")
    step = _number(step_text, {}) if slash else 1
    if body in {"*", "?"}:
        first, last = low, high
    else:
        first_text, dash, last_text = body.partition("-")
        first = _number(first_text, names)
        last = _number(last_text, names) if dash else (high if slash else first)
    if not (low <= first <= last <= high) or step < 1:
        raise ScheduleError(f"{part!r} is not within {low} to {high}")
    return range(first, last + 1, step)


def _number(text: str, names: dict[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    if not (text.isascii() and text.isdigit()) or len(text) > 4:
        raise ScheduleError(f"{text!r} is not a number of a schedule")
    return int(text)
