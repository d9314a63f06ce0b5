"""--assert, and its results for CI: --junit and --summary."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from replay.cli.errors import FAILED, ExitError, refusing
from replay.errors import RunError, unwritable
from replay.options import ParsedParam, option, takes
from replay.results.run.directory import RunDirectory
from replay.whatif.assertions import Assertion, FigureError, check, parse_assertion
from replay.whatif.ci import CheckResult, checks_markdown, figures_markdown, junit_xml
from replay.whatif.facts import RunFacts, all_figures, read_facts
from replay.whatif.selectors import MatchedChecks
from services.folder import append_to, write_file

STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
"""The variable that names the file of a GitHub step's summary."""
_OUTPUT = click.Path(dir_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """The checks of a command, and the files for their results; None for no file.

    allows_no_effect: whether a check may have conditions that no pod and no workload meets.
    """

    assertions: tuple[Assertion, ...] = option(
        "--assert",
        type=ParsedParam("CHECK", parse_assertion),
        multiple=True,
        help="Exit with code 1 unless a figure meets a condition: "
        "'preempted{priority<1000} == 0', 'waited_p99{class=web} <= 30' (seconds). Repeatable; "
        "docs/what-if.md lists the figures.",
    )
    junit: Path | None = option(  # noqa: RUF009 - a field
        "--junit",
        type=_OUTPUT,
        help="Write the result of each --assert to this file, as JUnit XML.",
    )
    summary: Path | None = option(  # noqa: RUF009 - a field
        "--summary",
        type=_OUTPUT,
        help="Write checks and figures to this file, as Markdown. They are also appended to the "
        "file that GITHUB_STEP_SUMMARY names.",
    )
    allows_no_effect: bool = False

    @property
    def are_wanted(self) -> bool:
        """Return whether there is a check to make or a file to write."""
        return bool(self.assertions or self.junit or self.summary)

    def results(self, place: str, run: RunFacts, other: RunFacts | None) -> list[CheckResult]:
        """Check a run; `other` is run A in a comparison of two runs. Raises FigureError."""
        matches = MatchedChecks()
        matches.look(self.assertions, [run] if other is None else [run, other])
        self.refuse_unmatched(matches)
        return [
            CheckResult.of(check(assertion, run, other), place) for assertion in self.assertions
        ]

    def results_at(self, point: str, run: RunFacts, other: RunFacts | None) -> list[CheckResult]:
        """Check the run at a point of a grid; `other` is the baseline's run. Raises FigureError."""
        return [
            CheckResult.of(check(assertion, run, other), point, point)
            for assertion in self.assertions
        ]

    def refuse_unmatched(self, matches: MatchedChecks) -> None:
        """Raise FigureError for a check that selects nothing, unless that is allowed."""
        if not self.allows_no_effect:
            matches.refuse()

    def conclude(
        self, suite: str, results: Sequence[CheckResult], describe: Callable[[], str]
    ) -> None:
        """Write the files, and raise ExitError with a sentence for each check that failed.

        `describe` returns the Markdown that the summary shows below the checks.
        """
        if self.junit is not None:
            write_whole(self.junit, junit_xml(suite, results))
        step = os.environ.get(STEP_SUMMARY)
        if step or self.summary is not None:
            text = "\n".join(filter(None, [checks_markdown(results), describe()]))
            if self.summary is not None:
                write_whole(self.summary, text.encode())
            if step:
                _append(Path(step), f"## {suite}\n\n{text}\n")
        raise_failed(results)

    def conclude_run(self, run: RunDirectory) -> None:
        """Check a single run, if there are checks or files; then act as `conclude`."""
        if not self.are_wanted:
            return
        with refusing(FigureError, RunError):
            facts = read_facts(run)
            results = self.results(run.path.name, facts, None)
            self.conclude("reprieve replay", results, lambda: figures_markdown(all_figures(facts)))

    def arguments(self) -> list[str]:
        """Return the options of these checks; paths are absolute."""
        arguments = [text for assertion in self.assertions for text in ("--assert", assertion.text)]
        for name, path in (("--junit", self.junit), ("--summary", self.summary)):
            arguments += [name, str(path.absolute())] if path is not None else []
        return arguments


def raise_failed(results: Iterable[CheckResult]) -> None:
    """Raise ExitError with a sentence for each check that failed."""
    failed = [result.failure for result in results if result.failure]
    if failed:
        raise ExitError(FAILED, "\n".join(failed))


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file atomically. Raises RunError or OutputError."""
    try:
        write_file(path, content)
    except OSError as error:
        raise unwritable(path, error) from error


def _append(path: Path, text: str) -> None:
    try:
        append_to(path, text.encode())
    except OSError as error:
        raise unwritable(path, error) from error


no_effect_option = click.option(
    "--allow-no-effect",
    "allows_no_effect",
    is_flag=True,
    help="Allow checks whose conditions no pod and no workload meets; by default they are refused.",
)
check_options = takes("checks", Checks)
