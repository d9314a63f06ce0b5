"""Warming up leaves no kernel to be compiled later."""

from __future__ import annotations

from typing import Any

from services.scheduler.core import domain_kernels, kernels, reprieve
from services.scheduler.core.warm_up import warm_up


def test_warming_up_calls_every_kernel() -> None:
    """Each of them has a compiled form afterwards."""
    warm_up()
    named = {**vars(kernels), **vars(reprieve), **vars(domain_kernels)}
    found: dict[str, Any] = {name: e for name, e in named.items() if hasattr(e, "signatures")}
    helpers = {name for name in found if name.startswith("_")}
    assert {name for name in found if not found[name].signatures} <= helpers
    assert len(found) - len(helpers) == 31
