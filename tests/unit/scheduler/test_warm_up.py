"""Warming up leaves no kernel to be compiled later."""

from __future__ import annotations

import numpy as np
import pytest

from services.framework.columns import domain_kernels, kernels, usage_kernels
from services.framework.columns.kernels import Kernel
from services.framework.preemption import batch_kernels
from services.scheduler.core.session.warm_up import warm_up


def test_warming_up_calls_every_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them has a compiled form afterwards."""
    monkeypatch.setattr(Kernel, "plain_steps", Kernel.plain_steps)
    warm_up()
    named = {**vars(kernels), **vars(batch_kernels), **vars(domain_kernels)}
    named["least_allocated"] = usage_kernels.least_allocated
    kernels_by_name = {name: item for name, item in named.items() if isinstance(item, Kernel)}
    assert not [name for name in kernels_by_name if kernels_by_name[name].machine_code is None]
    assert len(kernels_by_name) == 31


def test_a_kernel_is_plain_python_until_it_has_taken_its_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first argument counts: a number of steps, or a column with one for each element."""

    def number_of(_steps: object, number: int) -> int:
        return number

    monkeypatch.setattr(Kernel, "plain_steps", 5)
    kernel = Kernel(number_of)
    assert [kernel(3, 1), kernel(1, 2)] == [1, 2]
    assert kernel.machine_code is None
    assert kernel(np.ones(1), 3) == 3
    assert kernel.machine_code is not None
