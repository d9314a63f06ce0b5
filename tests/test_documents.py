"""The documents are whole: nothing is left to fill in, and every link leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("conformance/*.md")])


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_document_has_no_gap_and_no_dead_link(path: Path) -> None:
    """No placeholder is left, and files that are linked to exist."""
    text = path.read_text(encoding="utf-8")
    assert "@@" not in text
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_the_documents_are_found() -> None:
    """The globs above find the README, so that no test passes on nothing."""
    assert ROOT / "README.md" in DOCUMENTS
