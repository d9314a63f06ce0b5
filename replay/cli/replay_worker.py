"""A process that makes the replays of a sweep, a search or a comparison, one after the other.

    python -P -c "from replay.cli.replay_worker import main; main()"

A request is a line of standard input: a JSON list of a file for messages, and the arguments of
`replay`. The answer is a line of standard output: the exit code. What replays print is lost. The
process ends when its parent closes our standard input or ends. It also ends, with the replay's exit
code and without an answer, where a signal ended a replay, or an error that nothing handled.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from pathlib import Path
from queue import SimpleQueue

import orjson

from replay.cli import main as command_line
from replay.interrupts import SIGNALLED
from services.folder import open_to_append


def main() -> None:
    """Answer requests until the end."""
    requests = SimpleQueue[list[str]]()
    with os.fdopen(os.dup(1), "w") as answers, Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        threading.Thread(target=_receive, args=[requests], daemon=True).start()
        while True:
            log, *arguments = requests.get()
            with open_to_append(Path(log)) as messages:
                os.dup2(messages.fileno(), 2)
            code = _replayed(arguments)
            sys.stderr.flush()
            os.dup2(nowhere.fileno(), 2)
            print(code, file=answers, flush=True)


def _receive(requests: SimpleQueue[list[str]]) -> None:
    # Not sys.stdin: the interpreter aborts at its end where a thread waits with the buffer's lock.
    with io.FileIO(0, closefd=False) as lines:
        for line in lines:
            requests.put(orjson.loads(line))
    os.kill(os.getpid(), signal.SIGTERM)


def _replayed(arguments: list[str]) -> int:
    """Return the exit code of a replay. Raises SystemExit where a signal ended it."""
    sys.argv = ["reprieve", "replay", *arguments]
    try:
        command_line.main()
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 0
        if code >= SIGNALLED:
            raise
        return code
    return 0
