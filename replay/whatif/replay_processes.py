"""Replays in child processes, each of which makes one replay after the other.

A process imports our modules, loads the scheduler's kernels and reads a trace once, which takes
longer than a small replay, or than the part of a large one that a fork of a run replays. What a
replay ends with, a problem or a signal, is its exit code, as of the command.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, BinaryIO

import orjson

from services.folder import create_file

_CHILD = "from replay.cli.replay_worker import main; main()"


class CellError(RuntimeError):
    """A replay that failed; the text is the end of its messages, and `code` its exit code."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message, code)
        self.code = code

    def __str__(self) -> str:
        return str(self.args[0])


class ReplayProcesses:
    """Processes that replay; threads use them, and one thread may stop all.

    There are as many as replays at the same time. Each has a process group of its own: Ctrl-C on a
    terminal reaches the command alone, which stops them. Each has a pipe as standard input, and
    ends when this process ends in any way.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle = list[_ReplayProcess]()
        self._all = set[_ReplayProcess]()
        self._stopped = False

    def run(self, arguments: Sequence[str], log: Path) -> int:
        """Replay with its messages in the file `log`; return its exit code.

        Where the caller is interrupted, the replay is stopped first. Raises CellError after `stop`,
        and OSError if `log` cannot be written.
        """
        with create_file(log) as file:
            process = self._taken(file)
        try:
            code = process.replay(arguments, log)
        except BaseException:
            process.terminate()
            self._all.discard(process)
            raise
        if process.has_ended:
            self._all.discard(process)
        else:
            self._idle.append(process)
        return code

    def _taken(self, messages: BinaryIO) -> _ReplayProcess:
        with self._lock:
            if self._stopped:
                raise CellError("the replay was not started: the command is ending")
            process = self._idle.pop() if self._idle else _ReplayProcess(messages)
            self._all.add(process)
        return process

    def stop(self) -> None:
        """Send SIGTERM to the processes; no other replay is started."""
        with self._lock:
            self._stopped = True
            for process in list(self._all):
                process.request_end()

    def close(self) -> None:
        """End the processes that have no replay; a later replay starts another one."""
        with self._lock:
            idle, self._idle = self._idle, []
        for process in idle:
            process.terminate()
            self._all.discard(process)


class _ReplayProcess:
    """One process (replay/cli/replay_worker.py); until its first replay it writes to `messages`."""

    def __init__(self, messages: BinaryIO) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-P", "-c", _CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=messages,
            process_group=0,
        )
        self.has_ended = False

    def replay(self, arguments: Sequence[str], log: Path) -> int:
        """Return the exit code of a replay, or of the process if it has ended."""
        requests, answers = self._pipes()
        answer = b""
        with contextlib.suppress(BrokenPipeError):  # It has ended; its exit code says how.
            requests.write(orjson.dumps([str(log), *arguments]) + b"\n")
            requests.flush()
            answer = answers.readline()
        return int(answer) if answer else self._ended()

    def request_end(self) -> None:
        """Send SIGTERM."""
        self._process.terminate()

    def terminate(self) -> None:
        """Send SIGTERM, and wait for the end."""
        self._process.terminate()
        self._ended()

    def _ended(self) -> int:
        code = self._process.wait()
        self.has_ended = True
        # Only now: a process whose input is closed ends at once.
        for pipe in self._pipes():
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        return code

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None and answers is not None  # noqa: S101, PT018 - they are pipes
        return requests, answers
