"""Semantic versions 2.0.0, as in attributes of devices.

Source: github.com/blang/semver v4, Parse and Compare, which Kubernetes uses; of Kubernetes v1.36
apiserver/pkg/cel/library/semverlib.go, normalizeAndParse.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_IDENTIFIERS = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_VERSION = re.compile(
    rf"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-({_IDENTIFIERS}))?(?:\+({_IDENTIFIERS}))?",
    re.ASCII,
)
_UINT64_MAX = 2**64 - 1
_PARTS = 3


class SemverError(ValueError):
    """A text that is not a semantic version."""


@dataclass(frozen=True, slots=True)
class Semver:
    """A version; `pre` has the identifiers of a pre-release. Build metadata is ignored."""

    major: int
    minor: int
    patch: int
    pre: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[object, ...]:
        """Return the sort key of the version; a pre-release comes before its release."""
        identifiers = tuple(
            (0, int(part), "") if part.isdigit() else (1, 0, part) for part in self.pre
        )
        return (self.major, self.minor, self.patch, not self.pre, identifiers)

    def __str__(self) -> str:
        text = f"{self.major}.{self.minor}.{self.patch}"
        return f"{text}-{'.'.join(self.pre)}" if self.pre else text


@lru_cache(maxsize=4096)
def parse(text: str) -> Semver:
    """Parse a version. Raises SemverError."""
    match = _VERSION.fullmatch(text)
    if match is None:
        raise SemverError(f"{text!r} is not a semantic version, such as 1.2.3")
    major, minor, patch = (int(part) for part in match.groups()[:_PARTS])
    pre = tuple(match[4].split(".")) if match[4] else ()
    if max(major, minor, patch) > _UINT64_MAX:
        raise SemverError(f"{text!r} is not a semantic version: a number is too large")
    if any(part.isdigit() and part != "0" and part.startswith("0") for part in pre):
        raise SemverError(f"{text!r} is not a semantic version: a number begins with 0")
    return Semver(major, minor, patch, pre)


def parse_normalized(text: str) -> Semver:
    """Parse a version that may begin with "v", lack parts, or have parts with leading zeros."""
    parts = text.removeprefix("v").split(".", _PARTS - 1)
    parts = [_without_zeros(part) for part in parts]
    if len(parts) < _PARTS:
        if any(sign in parts[-1] for sign in "+-"):
            raise SemverError("short version cannot contain PreRelease/Build meta data")
        parts += ["0"] * (_PARTS - len(parts))
    return parse(".".join(parts))


def _without_zeros(part: str) -> str:
    if len(part) <= 1:
        return part
    rest = part.lstrip("0")
    return rest if rest[:1].isdigit() else f"0{rest}"
