"""What holds for every test: where nothing may be skipped, a skip is a failure."""

from __future__ import annotations

import gc
import math
import os
import signal
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from services.framework.columns.kernels import Kernel
from services.garbage import calm, collect_rarely
from tests.scheduler_rounds import ask_for_everything

# How fast a machine is, and how busy, is nothing that a test fails for.
settings.register_profile("reprieve", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("reprieve")

_LONG = ("languages", "e2e", "property", "torture")
"""Folders of long tests; first those whose files are the longest."""
FORBID = "REPRIEVE_FORBID_SKIPS"
"""Set by CI, which has all that tests may otherwise skip for: ../shared and a container engine."""


def pytest_configure() -> None:
    """Take signals that a shell or nohup has made this process ignore, for tests send them.

    A process that is started inherits what is ignored, and nothing that is handled. Garbage is
    collected rarely, as in a replay: it is a tenth to a fifth of the tests' CPU otherwise.
    """
    collect_rarely(young=100_000)
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with folders of long tests: no worker begins one when the others have ended."""
    items.sort(key=lambda item: [folder not in item.path.parts for folder in _LONG])


def pytest_collection_finish() -> None:
    """Exclude the tests and all that they import from the collection of garbage."""
    calm()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skipped test into a failed one where skips are forbidden."""
    del item, call
    report = yield
    if report.skipped and os.environ.get(FORBID):
        report.outcome = "failed"
        report.longrepr = f"skipped, which {FORBID} forbids: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turn a skipped module into a failed one where skips are forbidden."""
    del collector
    report = yield
    if report.outcome == "skipped" and os.environ.get(FORBID):
        report.outcome = "failed"
        report.longrepr = f"skipped, which {FORBID} forbids: {report.longrepr}"
    return report


def pytest_sessionfinish() -> None:
    """Let what was excluded be collected; DuckDB complains of what is left."""
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def _state_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Sign runs by a key of the tests, not by that of the person who runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="module", params=["plain", "compiled"])
def tier(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run kernels as plain Python only, and then compiled only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kernel, "plain_steps", math.inf if request.param == "plain" else 0)
        yield


@pytest.fixture(params=[True, False], ids=["looks ahead", "asks for everything"])
def looks_ahead(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Let the scheduler's sessions look ahead, and then do without it."""
    enabled: bool = request.param
    if not enabled:
        ask_for_everything(monkeypatch)
    return enabled
