"""The scheduler's checks notice every broken rule, each by the check with its number."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import grpc
import pytest

from replay.conform.contract.checks import FAILED, PASSED, ContractReport, run_checks
from replay.conform.contract.scheduler.contract import SCHEDULER
from tests.conformance_mutants.scheduler_rules import Breach, Difference, Freedom
from tests.conformance_mutants.scheduler_service import SmallSchedulerService, serving_scheduler

pytestmark = pytest.mark.e2e
DOCS = Path(__file__).resolve().parents[2] / "docs"
RULES = {check.rule for check in SCHEDULER.checks}


def report_of(difference: Difference | None, rule: str = "") -> ContractReport:
    """Return the results of all checks, or of a rule's, of the small scheduler."""
    checks = [check for check in SCHEDULER.checks if rule in {"", check.rule}]
    contract = dataclasses.replace(SCHEDULER, checks=checks)
    service = SmallSchedulerService(difference)
    with serving_scheduler(service) as address, grpc.insecure_channel(address) as channel:
        return run_checks(contract, channel, address)


@pytest.mark.parametrize("freedom", [None, *Freedom], ids=str)
def test_a_scheduler_that_keeps_every_rule_passes(freedom: Freedom | None) -> None:
    """Whatever it does with what the contract leaves to it."""
    report = report_of(freedom)
    assert {result.check: result.why for result in report.results if result.result != PASSED} == {}


@pytest.mark.parametrize("broken", Breach, ids=str)
def test_a_broken_rule_fails_its_check(broken: Breach) -> None:
    """By a check with the rule's number, so that the level that claims it is not reached."""
    report = report_of(broken, broken.rule)
    assert FAILED in {result.result for result in report.results}, broken.does
    assert report.level < min(result.level for result in report.results)


def test_every_rule_has_a_check_and_can_be_broken() -> None:
    """The documents, the checks and the small scheduler number the same rules."""
    numbered = {
        number
        for page, pattern in (
            ("write-a-scheduler.md", r"^- \*\*(\d+) "),
            ("sessions.md", r"^\| (S\d+) \|"),
        )
        for number in re.findall(pattern, (DOCS / page).read_text(encoding="utf-8"), re.M)
    }
    assert numbered == RULES == {breach.rule for breach in Breach}
