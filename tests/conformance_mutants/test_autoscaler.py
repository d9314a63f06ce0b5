"""The autoscaler's checks notice every broken rule, each by the check with its number."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import grpc
import pytest

from replay.conform.contract.autoscaler.contract import AUTOSCALER
from replay.conform.contract.checks import FAILED, PASSED, ContractReport, run_checks
from reprieve.autoscaler.v1beta1 import autoscaler_service_pb2_grpc
from tests.conformance_mutants.autoscaler_rules import Breach
from tests.conformance_mutants.small_autoscaler import SmallAutoscalerService
from tests.conformance_mutants.small_sessions import serving

pytestmark = pytest.mark.e2e
PAGE = Path(__file__).resolve().parents[2] / "docs" / "write-an-autoscaler.md"


def report_of(broken: Breach | None, rule: str = "") -> ContractReport:
    """Return the results of all checks, or of a rule's, of the small autoscaler."""
    checks = [check for check in AUTOSCALER.checks if rule in {"", check.rule}]
    contract = dataclasses.replace(AUTOSCALER, checks=checks)
    service = SmallAutoscalerService(broken)

    def register(server: grpc.Server) -> None:
        autoscaler_service_pb2_grpc.add_AutoscalerServiceServicer_to_server(service, server)

    with serving(register) as address, grpc.insecure_channel(address) as channel:
        return run_checks(contract, channel, address)


def test_the_small_autoscaler_keeps_every_rule() -> None:
    """All checks pass where no rule is broken."""
    report = report_of(None)
    assert {result.check: result.why for result in report.results if result.result != PASSED} == {}


@pytest.mark.parametrize("broken", Breach, ids=str)
def test_a_broken_rule_of_an_autoscaler_fails_its_check(broken: Breach) -> None:
    """By a check with the rule's number, so that the level that claims it is not reached."""
    report = report_of(broken, broken.rule)
    assert FAILED in {result.result for result in report.results}, broken.does
    assert report.level < min(result.level for result in report.results)


def test_every_rule_of_an_autoscaler_has_a_check_and_can_be_broken() -> None:
    """The page, the checks and the small autoscaler number the same rules."""
    levels = dict(re.findall(r"^\| (\d+) \| (\d) \|", PAGE.read_text(encoding="utf-8"), re.M))
    checked = {
        check.rule: str(check.level)
        for check in AUTOSCALER.checks
        if not check.rule.startswith("S")
    }
    assert levels == checked
    assert set(levels) == {breach.rule for breach in Breach}
