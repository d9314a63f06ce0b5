"""Messages of failed attempts, taken apart, so that versions' wordings can be compared.

Source: kubernetes v1.34 pkg/scheduler/framework/types.go, FitError.Error: "0/N nodes are
available: COUNT REASON, ... ." with what PostFilter said behind it.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

_FIT = re.compile(r"0/(\d+) nodes are available: ?(.*)", re.DOTALL)
# A reason may hold commas of its own; what begins with a count begins the next one.
_NEXT = re.compile(r", (?=\d+ )")
_TAINT = re.compile(r"node\(s\) had untolerated taint \{.*\}")
_TAINTS = "node(s) had untolerated taint(s)"
_CLAIMS = re.compile(r"(?:no new claims to deallocate|still not schedulable), ?")
PREEMPTION_MARK = "preemption: "
"""Stands before what a message says of preemption that did not help."""


@dataclass(frozen=True, slots=True)
class Told:
    """A message: what the filters said (nodes by reason), and what preemption said."""

    filters: frozenset[tuple[str, int]]
    preemption: frozenset[tuple[str, int]]


def told(message: str) -> Told:
    """Return what a message says, whatever the order of its reasons.

    Two changes after v1.34 are taken out of both: the texts of single taints are one reason, and
    what DynamicResources says of claims is left out.
    """
    text, mark, rest = _CLAIMS.sub("", message).partition(PREEMPTION_MARK)
    return Told(_reasons(text), _reasons(rest) if mark else frozenset())


def _reasons(text: str) -> frozenset[tuple[str, int]]:
    """Return the nodes by reason; a text that is no fit error is a reason of 0 nodes."""
    text = text.strip().removesuffix(".")
    match = _FIT.fullmatch(text)
    if match is None:
        return frozenset({(text, 0)}) if text else frozenset()
    found: Counter[str] = Counter({"nodes": int(match[1])})
    for each in _NEXT.split(match[2]):
        count, _, reason = each.partition(" ")
        if count.isdecimal():
            found[_TAINTS if _TAINT.fullmatch(reason) else reason] += int(count)
        elif each:
            found[each] += 0
    return frozenset(found.items())
