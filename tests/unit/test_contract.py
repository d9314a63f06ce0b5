"""The contract's own text: every RPC says what a caller must know before the first call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

PROTOS = Path(__file__).resolve().parents[2] / "protos"
SERVICES = sorted(PROTOS.rglob("*_service.proto"))
RPC = re.compile(r"((?:^  //.*\n)*)^  rpc (\w+)\(", re.MULTILINE)
ERROR_CODES = (
    "ABORTED",
    "FAILED_PRECONDITION",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "RESOURCE_EXHAUSTED",
    "UNIMPLEMENTED",
)


def comments(path: Path) -> dict[str, str]:
    """Return each RPC's comment in one line."""
    rpcs = RPC.findall(path.read_text(encoding="utf-8"))
    return {name: " ".join(text.replace("//", " ").split()) for text, name in rpcs}


def shortcomings(comment: str, others: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """Return which parts of the convention a comment lacks; it may refer to one of the `others`."""
    lacking = []
    if not re.search(r"\b(Not i|I)dempotent\b", comment):
        lacking.append("Idempotent")
    if not re.search(r"\bRequired: \S", comment):
        lacking.append("Required:")
    errors = _errors(comment)
    if referred := re.fullmatch(r"as (\w+)\.", errors):
        errors = _errors(others.get(referred[1], ""))
    if errors != "none of its own." and not any(code in errors for code in ERROR_CODES):
        lacking.append("Errors:")
    return lacking


def _errors(comment: str) -> str:
    return comment.partition("Errors: ")[2]


def test_every_service_of_the_contract_is_looked_at() -> None:
    """All RPCs of the files are found, so that the next test leaves none out."""
    assert len(SERVICES) == 5
    for path in SERVICES:
        lines = path.read_text(encoding="utf-8").splitlines()
        assert len(comments(path)) == sum(line.startswith("  rpc ") for line in lines)


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.stem)
def test_every_rpc_documents_idempotence_required_fields_and_errors(path: Path) -> None:
    """The convention that each service's comment names."""
    found = comments(path)
    lacking = {name: shortcomings(comment, found) for name, comment in found.items()}
    assert not {name: parts for name, parts in lacking.items() if parts}


def test_a_comment_that_lacks_a_part_is_found() -> None:
    """The check itself can fail."""
    assert shortcomings("GetState shows the whole state.") == ["Idempotent", "Required:", "Errors:"]
    assert shortcomings("X. Idempotent. Required: stamp. Errors: some.") == ["Errors:"]
    assert not shortcomings("X. Idempotent: a read. Required: a. Errors: none of its own.")
    referring = "X. Idempotent. Required: a. Errors: as Y."
    assert shortcomings(referring) == ["Errors:"]
    assert shortcomings(referring, {"Y": "Y. Errors: some."}) == ["Errors:"]
    assert not shortcomings(referring, {"Y": "Y. Errors: ABORTED, always."})
