"""Out-of-tree plugins, guarded: an exception in one ends a scheduling cycle and never the session.

A method that returns a status returns an error status instead. An exception in `score` ends the
cycles that need scores. Any other exception is raised as PluginFailed, which ends the cycle. Where
there is no cycle to end, as when a pod comes to a node, the failure is kept for the next cycle.

Source: kubernetes v1.34 pkg/scheduler/framework/runtime/framework.go, RunScorePlugins (the check
of a plugin's scores).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial, wraps
from pathlib import PurePath
from typing import Any

from services.framework.columns.kernels import NODE_SCORE_MAX
from services.framework.plugin import Normalization, Plugin, ScoreError, Trial
from services.framework.status import Code, Status

_KEYS = ("filter_key", "score_key", "filter_version", "score_version")
_ENDING = (
    "pre_filter",
    "filter",
    "filter_node",
    "filter_status",
    "bounds",
    "pre_score",
    "score_epoch",
    "normalize",
    "came_to_view",
    "went_from_view",
    "post_filter",
)
_RETURNING_STATUS = ("pre_enqueue", "reserve", "permit", "pre_bind", "bind")
_RESULT_OF_KEPT = {"skips": False, "sort_key": b"", "unreserve": None, "post_bind": None}
_KEPT_FOREVER = ("pod_came", "pod_went")

_RAISE_KEPT = "_raise_kept"

_Method = Callable[..., Any]


class PluginFailed(Exception):  # noqa: N818 - an outcome of a cycle, as in upstream's wording
    """A plugin raised; the text names it, the method, the error and where it came from."""


class _Failures:
    """Failures of a plugin outside a scheduling cycle; `lasting` ends every later cycle."""

    def __init__(self) -> None:
        self.lasting: PluginFailed | None = None
        self.once: PluginFailed | None = None

    def check(self) -> None:
        """Raise the kept failure, if there is one."""
        once, self.once = self.once, None
        failure = self.lasting or once
        if failure is not None:
            raise failure


def guarded(plugin: Plugin) -> Plugin:
    """Return `plugin`, of a class that is derived from its own and guards its methods."""
    cls, failures = type(plugin), _Failures()
    guards: Mapping[str, Callable[[str, _Method, _Failures], _Method]] = {
        **dict.fromkeys(_KEYS, _of_key),
        **dict.fromkeys(_ENDING, _ending),
        **dict.fromkeys(_RETURNING_STATUS, _returning_status),
        **dict.fromkeys(_RESULT_OF_KEPT, _kept),
        **dict.fromkeys(_KEPT_FOREVER, _kept_forever),
        "trial": _of_trial,
        "score": _of_score,
    }
    methods: dict[str, Any] = {
        name: guard(name, getattr(cls, name), failures)
        for name, guard in guards.items()
        if callable(getattr(cls, name, None))
    }
    methods[_RAISE_KEPT] = lambda _self: failures.check()
    derived = type(cls.__name__, (cls,), {**methods, "__slots__": (), "__doc__": cls.__doc__})
    # A factory may be any function and returns a finished plugin, so the class cannot be derived
    # before. An object around it would have to be of the same extension points, and would not
    # guard the methods that the plugin calls on itself.
    object.__setattr__(plugin, "__class__", derived)
    return plugin


def raisers(plugins: Iterable[Plugin]) -> tuple[Callable[[], None], ...]:
    """Return the functions that raise the failures kept by guarded ones among `plugins`."""
    checks = (getattr(plugin, _RAISE_KEPT, None) for plugin in plugins)
    return tuple(check for check in checks if check is not None)


def _ending(name: str, method: _Method, _: _Failures) -> _Method:
    @wraps(method)
    def ending(self: Plugin, *args: Any, **named: Any) -> Any:
        try:
            return method(self, *args, **named)
        except Exception as error:
            raise _failed(self, name, error) from error

    return ending


def _of_key(name: str, method: _Method, failures: _Failures) -> _Method:
    def hashed(self: Plugin, *args: Any) -> Any:
        key = method(self, *args)
        hash(key)
        return key

    return _ending(name, hashed, failures)


def _of_trial(name: str, method: _Method, failures: _Failures) -> _Method:
    ending = _ending(name, method, failures)

    def trial(self: Plugin, *args: Any) -> Trial:
        return _GuardedTrial(self, ending(self, *args))

    return trial


def _of_score(_name: str, method: _Method, _: _Failures) -> _Method:
    @wraps(method)
    def score(self: Any, data: Any, snapshot: Any, rows: Any, scores: Any) -> None:
        try:
            method(self, data, snapshot, rows, scores)
        except ScoreError:
            raise
        except Exception as error:
            raise ScoreError(_error_text(error)) from error
        if self.normalization is not Normalization.OWN:
            _check_scores(scores[rows][snapshot.columns.alive[rows]], self.normalization)

    return score


def _check_scores(scores: Any, normalization: Normalization) -> None:
    most = NODE_SCORE_MAX if normalization is Normalization.NONE else None
    for wrong in scores[(scores < 0) | (False if most is None else scores > most)][:1].tolist():
        text = f"returns an invalid score {wrong}, it should in the range of [0, {NODE_SCORE_MAX}]"
        raise ScoreError(text if most is not None else f"returns an invalid score {wrong}, below 0")


def _returning_status(name: str, method: _Method, _: _Failures) -> _Method:
    @wraps(method)
    def returning_status(self: Plugin, *args: Any) -> Any:
        try:
            return method(self, *args)
        except Exception as error:
            text = str(_failed(self, name, error))
            return Status(code=Code.ERROR, plugin=self.name, reasons=(text,))

    return returning_status


def _kept(name: str, method: _Method, failures: _Failures) -> _Method:
    @wraps(method)
    def kept(self: Plugin, *args: Any) -> Any:
        try:
            return method(self, *args)
        except Exception as error:
            failures.once = _failed(self, name, error)
            return _RESULT_OF_KEPT[name]

    return kept


def _kept_forever(name: str, method: _Method, failures: _Failures) -> _Method:
    @wraps(method)
    def kept(self: Plugin, *args: Any) -> None:
        try:
            method(self, *args)
        except Exception as error:
            failures.lasting = failures.lasting or _failed(self, name, error)

    return kept


class _GuardedTrial:
    """A plugin's trial of one node."""

    def __init__(self, plugin: Plugin, trial: Trial) -> None:
        self._run = partial(_run, plugin)
        self._trial = trial

    def add(self, pod: Any) -> None:
        self._run("trial", self._trial.add, pod)

    def remove(self, pod: Any) -> None:
        self._run("trial", self._trial.remove, pod)

    def code(self) -> int:
        code: int = self._run("trial", self._trial.code)
        return code


def _run(plugin: Plugin, name: str, method: _Method, *args: Any) -> Any:
    try:
        return method(*args)
    except Exception as error:
        raise _failed(plugin, name, error) from error


def _failed(plugin: Plugin, method: str, error: Exception) -> PluginFailed:
    if isinstance(error, PluginFailed):
        return error
    return PluginFailed(f'running plugin "{plugin.name}": {method}: {_error_text(error)}')


def _error_text(error: Exception) -> str:
    """Return an error's type and text, and the line that raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = ""
    if trace is not None:
        where = f" ({PurePath(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno})"
    text = f"{type(error).__name__}: {error}{where}"
    return text.encode(errors="replace").decode()
