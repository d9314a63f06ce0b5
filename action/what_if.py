"""Replays what a pull request changes, compares, and writes a comment. action.yml runs it.

Two ways. With REPRIEVE_TRACE, a recorded workload is replayed with the settings of base and of
head: changed PriorityClasses and disruption budgets as --set, configuration files as they are.
Without it, the manifests of base and of head are replayed. Inputs are environment variables, so
that no text of a pull request becomes part of a shell's command. Exit code: that of
`reprieve compare`.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from replay.errors import TraceError
from replay.kube.documents import yaml_values
from replay.whatif.ci import code, plain
from services.folder import append_to
from services.rpc.version import package_version

MARKER = "<!-- reprieve-what-if -->"
"""The comment's first line: by it, a later run finds the comment and replaces it."""
CLASS, BUDGET = "PriorityClass", "PodDisruptionBudget"
KUBELET, SCHEDULER = "KubeletConfiguration", "KubeSchedulerConfiguration"
KINDS = (CLASS, BUDGET, KUBELET, SCHEDULER)
_OPTIONS = {KUBELET: "--kubelet-config", SCHEDULER: "--scheduler-config"}
_DEFAULTS: Mapping[str, Any] = {"preemptionPolicy": "PreemptLowerPriority", "globalDefault": False}
"""Of a PriorityClass. Source: kubernetes v1.34 pkg/apis/scheduling/v1/defaults.go."""
_SUFFIXES = frozenset({".yaml", ".yml", ".json"})
_COMMENT_CHARS_MAX = 60_000
"""GitHub takes 65,536 in a comment."""
REFUSED = 2

RESULTS = {"--junit": "checks.xml", "--summary": "comparison.md", "--html": "comparison.html"}
"""Options of `reprieve compare` and the files that they name, beside comment.md."""

Key = tuple[str, str, str]
"""Kind, namespace and name of an object; of a configuration file, its path as the name."""


class InputError(Exception):
    """An input that is missing or contradicts another; the text says what to do."""


@dataclass(slots=True, kw_only=True)
class Change:
    """What differs between base and head: the options of each side, and notes for the comment."""

    files: list[str]
    options_a: list[str] = field(default_factory=list)
    options_b: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def main() -> int:
    """Replay, compare, and write the comment; return the exit code."""
    out = Path(os.environ.get("REPRIEVE_OUTPUT") or "reprieve-what-if").resolve()
    out.mkdir(parents=True, exist_ok=True)
    for name in RESULTS.values():
        (out / name).unlink(missing_ok=True)
    try:
        exit_code, text = _what_if(out)
    except InputError as error:
        sys.stderr.write(f"Error: {error}\n")
        exit_code, text = REFUSED, f"The what-if was not made: {plain(str(error))}\n"
    comment = out / "comment.md"
    comment.write_text(_comment(text), encoding="utf-8")
    if github := os.environ.get("GITHUB_OUTPUT"):
        append_to(Path(github), f"comment={comment}\ncode={exit_code}\n".encode())
    return exit_code


def _what_if(out: Path) -> tuple[int, str]:
    """Return the exit code and the comment's text."""
    base, head = _commits()
    names = _git("diff", "--name-only", "-z", f"{base}...{head}").split("\0")
    with _trees(_git("merge-base", base, head).strip(), head) as (tree_a, tree_b):
        changed = [name for name in names if name and _is_wanted(name, tree_a, tree_b)]
        if not changed:
            return 0, "No file that a what-if is made for has changed.\n"
        change = Change(files=changed)
        configured = _configured(change, tree_a, tree_b)
        traces = _words("REPRIEVE_TRACE")
        if traces:
            _set_objects(change, _objects(tree_a, changed), _objects(tree_b, changed))
            if not configured and not (change.options_a or change.options_b):
                return 0, _described(change) + "\nNothing that a replay reads differs.\n"
            paths = [str(Path(each).resolve()) for each in traces]
            exit_code, errors = _compare_trace(out, paths, change)
        else:
            exit_code, errors = _compare_manifests(out, tree_a, tree_b, change)
    table = out / RESULTS["--summary"]
    result = table.read_text(encoding="utf-8") if table.exists() else ""
    failed = f"\nThe replays failed:\n\n<pre>{escape(errors[-4000:])}</pre>\n" if not result else ""
    return exit_code, f"{_described(change)}\n{result}{failed}"


def _commits() -> tuple[str, str]:
    base = os.environ.get("REPRIEVE_BASE", "").strip()
    if not base:
        raise InputError("there is no base commit: set the input `base`")
    head = os.environ.get("REPRIEVE_HEAD", "").strip() or "HEAD"
    found = []
    for name in (base, head):
        try:
            commit = _git("rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")
        except subprocess.CalledProcessError:
            problem = f"there is no commit {name!r}: check out with fetch-depth: 0"
            raise InputError(problem) from None
        found.append(commit.strip())
    return found[0], found[1]


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603 - no shell


@contextmanager
def _trees(base: str, head: str) -> Iterator[tuple[Path, Path]]:
    """Check both commits out into a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="reprieve-") as folder:
        trees = Path(folder) / "base", Path(folder) / "head"
        try:
            for tree, commit in zip(trees, (base, head), strict=True):
                _git("worktree", "add", "--quiet", "--detach", str(tree), commit)
            yield trees
        finally:
            for tree in trees:
                if tree.exists():
                    _git("worktree", "remove", "--force", str(tree))


def _words(name: str) -> list[str]:
    """Return the paths of an input: separated by white space, quoted as in a shell."""
    return shlex.split(os.environ.get(name, ""))


def _is_wanted(name: str, *trees: Path) -> bool:
    kinds = set(_words("REPRIEVE_KINDS")) or set(KINDS)
    if "*" in kinds:
        return True
    return _has_kind(name, kinds, *trees)


def _has_kind(name: str, kinds: set[str], *trees: Path) -> bool:
    return any(document.get("kind") in kinds for tree in trees for document in _read(tree, name))


def _read(tree: Path, name: str) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of a file, those in lists too; nothing of one that is not YAML or JSON."""
    path = tree / name
    if path.suffix not in _SUFFIXES or path.is_symlink() or not path.is_file():
        return
    try:
        with path.open("rb") as file:
            documents = [document for _, document in yaml_values(file, name)]
    except TraceError:
        return
    for document in documents:
        items = document.get("items") if isinstance(document, dict) else None
        for value in items if isinstance(items, list) else [document]:
            if isinstance(value, dict):
                yield value


def _objects(tree: Path, names: Sequence[str]) -> dict[Key, Mapping[str, Any]]:
    found: dict[Key, Mapping[str, Any]] = {}
    for name in names:
        for document in _read(tree, name):
            kind, meta = document.get("kind"), document.get("metadata")
            if kind in {CLASS, BUDGET} and isinstance(meta, dict):
                namespace = str(meta.get("namespace") or "default") if kind == BUDGET else ""
                found[kind, namespace, str(meta.get("name", ""))] = document
    return found


def _configured(change: Change, tree_a: Path, tree_b: Path) -> bool:
    """Add the configuration files of both sides; return whether one of them has changed."""
    has_changed = False
    for kind, option in _OPTIONS.items():
        variable = f"REPRIEVE_{option.strip('-').replace('-', '_').upper()}"
        named = _words(variable) or [
            name for name in change.files if _has_kind(name, {kind}, tree_a, tree_b)
        ]
        if len(named) > 1:
            problem = f"{len(named)} files of kind {kind} have changed"
            raise InputError(f"{problem}: set the input `{option.strip('-')}` to one of them")
        for name in named:
            has_changed |= name in change.files
            for tree, options in ((tree_a, change.options_a), (tree_b, change.options_b)):
                if (tree / name).is_file():
                    options += [option, str(tree / name)]
    return has_changed


def _set_objects(
    change: Change, base: Mapping[Key, Mapping[str, Any]], head: Mapping[Key, Mapping[str, Any]]
) -> None:
    """Add --set for each field that differs; both sides get theirs, whatever was recorded."""
    for key in dict.fromkeys([*base, *head]):
        kind, namespace, name = key
        one, other = base.get(key), head.get(key)
        shown = f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"
        if other is None:
            change.notes.append(f"{shown} is deleted: the recorded one is kept in both replays")
        elif kind == CLASS:
            _set_class(change, name, one or {}, other)
        elif one is None:
            change.notes.append(f"{shown} is new: the replays do not have it")
        else:
            _set_budget(change, f"{namespace}/{name}", one, other)


def _set_class(change: Change, name: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    for each in ("value", *_DEFAULTS):
        values = [side.get(each, _DEFAULTS.get(each)) for side in (one, other)]
        if values[0] != values[1]:
            for value, options in zip(values, (change.options_a, change.options_b), strict=True):
                if value is not None:
                    options += ["--set", f"priorityClass.{name}.{each}={_scalar(value)}"]


def _set_budget(
    change: Change, name: str, one: Mapping[str, Any], other: Mapping[str, Any]
) -> None:
    specs = [each.get("spec") or {} for each in (one, other)]
    fields = ("minAvailable", "maxUnavailable")
    if all(specs[0].get(each) == specs[1].get(each) for each in fields):
        return
    for spec, options in zip(specs, (change.options_a, change.options_b), strict=True):
        for each in fields:
            if spec.get(each) is not None:
                options += ["--set", f"pdb.{name}.{each}={_scalar(spec[each])}"]


def _scalar(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _compare_trace(out: Path, traces: Sequence[str], change: Change) -> tuple[int, str]:
    sides = ["--a", shlex.join(change.options_a), "--b", shlex.join(change.options_b)]
    common = ["--allow-no-effect", *_words("REPRIEVE_OPTIONS")]
    runs = ["--run", str(out / "runs")]
    return _reprieve("compare", *traces, *sides, *runs, *_results(out), "--force", "--", *common)


def _compare_manifests(out: Path, tree_a: Path, tree_b: Path, change: Change) -> tuple[int, str]:
    names = _words("REPRIEVE_MANIFESTS")
    if not names:
        raise InputError("there is nothing to replay: set the input `trace` or `manifests`")
    sides = (("a", tree_a, change.options_a), ("b", tree_b, change.options_b))
    for side, tree, options in sides:
        paths = [str(tree / each) for each in names]
        run = ["--run", str(out / "runs" / side), "--force", "-q", "--no-report"]
        exit_code, errors = _reprieve("replay", *paths, *options, *run, *_words("REPRIEVE_OPTIONS"))
        if exit_code:
            return max(exit_code, REFUSED), errors
    return _reprieve("compare", *(str(out / "runs" / side) for side in "ab"), *_results(out))


def _results(out: Path) -> list[str]:
    """Return the options of `compare` for its results: checks, and the files for CI."""
    checks = [each.strip() for each in os.environ.get("REPRIEVE_CHECKS", "").splitlines()]
    found = [part for each in checks if each for part in ("--assert", each)]
    files = (part for option, name in RESULTS.items() for part in (option, str(out / name)))
    return [*found, *files]


def _reprieve(*arguments: str) -> tuple[int, str]:
    """Run a command of the installed reprieve; return its exit code and its errors."""
    command = [sys.executable, "-P", "-m", "replay.cli", *arguments]
    done = subprocess.run(command, check=False, stderr=subprocess.PIPE, text=True)  # noqa: S603 - no shell
    sys.stderr.write(done.stderr)
    return done.returncode, done.stderr


def _described(change: Change) -> str:
    lines = [f"- {code(each)}" for each in change.files[:20]]
    if len(change.files) > 20:
        lines.append(f"- and {len(change.files) - 20} more")
    notes = "".join(f"\nNote: {plain(each)}.\n" for each in change.notes)
    return "Changed files:\n\n" + "\n".join(lines) + f"\n{notes}"


def _comment(text: str) -> str:
    head = f"{MARKER}\n### What-if of this pull request\n\nA: base. B: this pull request.\n\n"
    if len(text) > _COMMENT_CHARS_MAX:
        kept = text[:_COMMENT_CHARS_MAX].rpartition("\n")[0]
        text = f"{kept}\n\nThe rest is in the step's summary.\n"
    tail = (
        f"Reprieve {package_version()}. The artifact `reprieve-what-if` has the page with charts.\n"
    )
    return f"{head}{text}\n{tail}"


if __name__ == "__main__":
    sys.exit(main())
