"""The eviction service's checks notice every broken rule, each by the check with its number."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import grpc
import pytest

from replay.conform.contract.checks import FAILED, PASSED, ContractReport, run_checks
from replay.conform.contract.eviction import EVICTION
from reprieve.eviction.v1beta1 import eviction_service_pb2_grpc
from tests.conformance_mutants.small_eviction import Breach, SmallEvictionService
from tests.conformance_mutants.small_sessions import serving

pytestmark = pytest.mark.e2e
PAGE = Path(__file__).resolve().parents[2] / "docs" / "write-an-eviction-service.md"


def report_of(broken: Breach | None, rule: str = "") -> ContractReport:
    """Return the results of all checks, or of a rule's, of the small service."""
    checks = [check for check in EVICTION.checks if rule in {"", check.rule}]
    contract = dataclasses.replace(EVICTION, checks=checks)
    service = SmallEvictionService(broken)

    def register(server: grpc.Server) -> None:
        eviction_service_pb2_grpc.add_EvictionServiceServicer_to_server(service, server)

    with serving(register) as address, grpc.insecure_channel(address) as channel:
        return run_checks(contract, channel, address)


def test_the_small_eviction_service_keeps_every_rule() -> None:
    """All checks pass where no rule is broken."""
    report = report_of(None)
    assert {result.check: result.why for result in report.results if result.result != PASSED} == {}


@pytest.mark.parametrize("broken", Breach, ids=str)
def test_a_broken_rule_of_an_eviction_service_fails_its_check(broken: Breach) -> None:
    """By a check with the rule's number, so that the level that claims it is not reached."""
    report = report_of(broken, broken.rule)
    assert FAILED in {result.result for result in report.results}, broken.does
    assert report.level < min(result.level for result in report.results)


def test_every_rule_of_an_eviction_service_has_a_check_and_can_be_broken() -> None:
    """The page, the checks and the small service number the same rules."""
    numbered = set(re.findall(r"^\| (\d+) \| \d \|", PAGE.read_text(encoding="utf-8"), re.M))
    checked = {check.rule for check in EVICTION.checks if not check.rule.startswith("S")}
    assert numbered == checked == {breach.rule for breach in Breach}
