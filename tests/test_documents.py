"""The documents are whole: no gap, no dead link, and no command or option that does not exist."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest

from replay.cli.main import EXIT_CODES, command

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("conformance/*.md")])
EXAMPLES = [path for path in ROOT.glob("examples/**/*.md") if "node_modules" not in path.parts]
ENDS = {"|", ">", "<", "&", "&&", "·"}
COMMANDS = sorted([*EXAMPLES, *(path for path in DOCUMENTS if path.parent.name != "decisions")])


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


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_document_names_commands_and_options_that_exist(path: Path) -> None:
    """In blocks of shell commands and in code within the text."""
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    blocks = re.findall(r"^ *```(?:sh|console)?\n(.*?)^ *```", text, re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines()]
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.M | re.S)
    lines += re.findall(r"`(reprieve [^`]+)`", prose)
    wrong = [f"{line}: {problem}" for line in lines for problem in unknown(line)]
    assert wrong == []


def unknown(line: str) -> Iterator[str]:
    """Yield the commands and options of a line that `reprieve` does not have."""
    match = re.match(r"(?:\$ )?(?:[A-Z_]+=\S+ )*reprieve (?P<rest>.*)$", line)
    words = shlex.shlex(match["rest"] if match else "", posix=True, punctuation_chars=True)
    words.whitespace_split = True
    yield from _unknown(command, [*itertools.takewhile(lambda word: word not in ENDS, words)])


def _unknown(at: click.Command, words: Sequence[str]) -> Iterator[str]:
    context = click.Context(at)
    if isinstance(at, click.Group) and words and re.fullmatch("[a-z][a-z-]*", words[0]):
        inner = at.get_command(context, words[0])
        yield from [f"no command {words[0]}"] if inner is None else _unknown(inner, words[1:])
        return
    options = {
        name for param in at.get_params(context) for name in param.opts + param.secondary_opts
    }
    own = words[: (*words, "--").index("--")]
    for former, word in itertools.pairwise(["", *own]):
        name = word.partition("=")[0]
        if former in {"--a", "--b"}:
            yield from unknown(f"reprieve replay {word}")
        elif re.fullmatch(r"--?[a-zA-Z][\w-]*", name) and name not in options:
            yield f"no option {name}"
    if len(own) < len(words):
        yield from unknown(shlex.join(["reprieve", "replay", *words[len(own) + 1 :]]))


def test_an_unknown_command_or_option_of_a_document_is_found() -> None:
    """Also behind an option that holds options, and behind those of the command itself."""
    line = "$ reprieve compare a.ktr --b '--tset x=1' --nor no -- --spams off  # a comment"
    assert [*unknown(line)] == ["no option --tset", "no option --nor", "no option --spams"]
    assert [*unknown("reprieve replya 'a | b' | tail -1")] == ["no command replya"]
    assert [*unknown("A=1 reprieve get pods RUN -w -o wide")] == []


def test_the_page_of_exit_codes_has_them_all_as_text() -> None:
    """A repository's page shows the file as it is, so that the table cannot be made by the site."""
    page = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d[\d, ]*) \| (.*) \|$", page, re.M)
    assert rows == list(EXIT_CODES.items())


def test_the_page_of_commands_names_every_command() -> None:
    """In its table; the generated help below it has them by itself."""
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    names = command.list_commands(click.Context(command))
    assert names
    assert [
        name for name in names if not re.search(rf"^\|.*`(reprieve )?{name}\b", page, re.M)
    ] == []


def test_the_page_of_fidelity_has_every_controller_of_upstream_that_is_followed() -> None:
    """Each package of upstream's controllers that a source line names is in the page's table."""
    page = (ROOT / "docs" / "fidelity.md").read_text(encoding="utf-8")
    sources = [path.read_text(encoding="utf-8") for path in ROOT.glob("replay/world/**/*.py")]
    followed = {
        name for text in sources for name in re.findall(r"pkg/controller/([a-z]+)[/;,. \n]", text)
    }
    assert {"deployment", "disruption", "podgc"} <= followed
    assert {name for name in followed if f"pkg/controller/{name}" not in page} == set()
