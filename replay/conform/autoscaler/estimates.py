"""Runs the conformance vectors of estimator and expanders on the installed code, not over gRPC.

No RPC returns their results alone. Their effects on scans are covered by the scripts (session.py),
which run against any AutoscalerService.
"""

from __future__ import annotations

import orjson

from replay.conform.autoscaler.cluster import Json
from services.in_process import autoscaler_parts


def estimate_difference(vector: Json) -> str:
    """Return how an estimate differs from the recorded one and its alternatives, "" if not.

    An alternative has no groups of pods: those follow from no order.
    """
    made = autoscaler_parts()["estimate"](vector)
    recorded = (vector["expected"], *vector.get("alternatives", ()))
    differences = [_difference(made, expected) for expected in recorded]
    return "" if "" in differences else differences[0]


def expander_difference(vector: Json) -> str:
    """Return how the groups that a chain may choose differ from the recorded ones, "" if not."""
    expected = vector["expected"]
    recorded = {"best": sorted(expected.get("best", ())), "error": "error" in expected}
    return _difference(autoscaler_parts()["expander"](vector), recorded)


def _difference(made: Json, expected: Json) -> str:
    for name, recorded in expected.items():
        if made[name] != recorded:
            return f"{name} {_text(made[name])}, expected {_text(recorded)}"
    return ""


def _text(value: object) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
