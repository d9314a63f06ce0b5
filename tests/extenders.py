"""A web service that answers as an extender: in tests, of upstream's protocol and of its breach."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = Any
ANY_EXTENDER = "extenders: [{urlPrefix: '*'}]"
"""The configuration of services that call whatever extender a session names."""
Verb = Callable[[Json], Json]


class Raw(bytes):
    """An answer that is sent as it is."""


class ThenClosed(Raw):
    """An answer after which the server closes the connection without announcing it."""


class Webhook:
    """What a running service was asked, verb and arguments, and where it listens."""

    def __init__(self, url: str, calls: list[tuple[str, Json]]) -> None:
        self.url = url
        self.calls = calls

    def asked(self, verb: str) -> list[Json]:
        """Return the arguments of a verb's calls."""
        return [args for name, args in self.calls if name == verb]


@contextmanager
def webhook(**verbs: Verb) -> Iterator[Webhook]:
    """Serve `verbs` by name on a free port; what a verb raises is answered with status 500."""
    calls: list[tuple[str, Json]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # An answer in two writes would wait 40 ms otherwise.

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            name, args = self.path.rpartition("/")[2], json.loads(body)
            calls.append((name, args))
            try:
                answer = verbs[name](args)
                status = 200
            except Exception as error:
                answer, status = str(error), 500
            sent = answer if isinstance(answer, Raw) else json.dumps(answer).encode()
            with suppress(OSError):
                self.send_response(status)
                self.send_header("Content-Length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)
            self.close_connection = isinstance(answer, ThenClosed)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            """Stay silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield Webhook(f"http://127.0.0.1:{server.server_address[1]}/scheduler", calls)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
