"""An API server for tests: it plays lists and watches that were written down before."""

from __future__ import annotations

import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import orjson

Raw = dict[str, Any]
CLOSE = "close"
"""Ends a watch in good order, as a server does after its timeout."""
BREAK = "break"
"""Ends a watch in the middle of a line, as a lost connection does."""


@dataclass(slots=True, kw_only=True)
class Listing:
    """What a list answers: objects, as of a version; `expires` refuses that many further pages.

    Without a version ("") the list has no resourceVersion.
    """

    items: Sequence[Raw]
    version: int | str
    expires: int = 0


Refusal = tuple[int, str, str]
"""HTTP's status, and the reason and message of a Status."""


@dataclass(slots=True, kw_only=True)
class Script:
    """One resource: what each list answers and what each watch says, one after the other.

    The last list is answered again and again, with what watches have said since, as a server whose
    lists are consistent does; after the last watch, watches say nothing and stay.
    A watch's entries are events, CLOSE or BREAK. `refusal` is for every request. `asked` keeps the
    queries. A watch says nothing before `listed_on_disk`, where it is set, is a file with content.
    """

    lists: list[Listing | Refusal] = field(default_factory=lambda: [Listing(items=(), version=1)])
    watches: list[list[Raw | str] | Refusal] = field(default_factory=list)
    refusal: Refusal | None = None
    asked: list[dict[str, str]] = field(default_factory=list)
    held: bool = False
    listed_on_disk: Path | None = None

    def say(self, event: Raw) -> None:
        """Make later lists show what a watch says, where the last one does not yet."""
        raw, last = event["object"], self.lists[-1]
        metadata = raw.get("metadata")
        if isinstance(last, tuple) or not isinstance(metadata, dict):
            return
        version, before = str(metadata.get("resourceVersion")), str(last.version)
        if not (version.isdecimal() and before.isdecimal() and int(version) > int(before)):
            return
        uid = metadata.get("uid")
        items = [item for item in last.items if not uid or item["metadata"].get("uid") != uid]
        if event["type"] in {"ADDED", "MODIFIED"}:
            items.append(raw)
        self.lists[-1] = replace(last, items=items, version=version)


Hostile = Callable[[BufferedIOBase, Event], None]
"""Writes what it likes in place of an answer, status line included, until it returns."""
Live = Callable[[BufferedIOBase, Event, dict[str, str]], None]
"""As Hostile, with the query of the request."""


class ApiServerDouble:
    """Serves scripts by path, and other answers; a context. `lines` counts what watches said.

    `answers` are plain objects by path, or refusals. `bearer`, where it is set, is the token that a
    request must bring; `seen` are the Authorization headers that came. `series` are what a
    Prometheus answers, by a piece of the query. `hostile` answers, by path, come before all others,
    `hostile_watches` are those of watches, and `live` those that read their query;
    `headers` are added to every other answer. `requests` counts requests by path. `readable`, where
    it is set, are the paths that the user may read, with all below them; others are forbidden.
    """

    def __init__(
        self,
        scripts: dict[str, Script],
        *,
        answers: dict[str, Raw | Refusal] | None = None,
        tls: ssl.SSLContext | None = None,
        bearer: str = "",
    ) -> None:
        self.scripts = scripts
        devices = {"versions": [{"version": "v1"}, {"version": "v1beta1"}]}
        served: dict[str, Raw | Refusal] = {
            "/version": {"gitVersion": "v1.34.1"},
            "/apis/resource.k8s.io": devices,
        }
        self.answers = {**served, **(answers or {})}
        self.bearer = bearer
        self.seen: list[str] = []
        self.series: dict[str, list[Raw]] = {}
        self.hostile: dict[str, Hostile] = {}
        self.hostile_watches: dict[str, Hostile] = {}
        self.live: dict[str, Live] = {}
        self.headers: dict[str, str] = {}
        self.requests = Counter[str]()
        self.readable: tuple[str, ...] | None = None
        self.lines = 0
        self.lock = Lock()
        self.stopping = Event()
        self._server = _Server(self)
        self._scheme = "http"
        if tls is not None:
            self._scheme = "https"
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        """Return the server's address."""
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    def may_read(self, path: str) -> bool:
        """Return whether the user may read a path; everybody may see a group's versions."""
        allowed = self.readable
        is_group = path.startswith("/apis/") and path.count("/") == 2
        return (
            allowed is None
            or is_group
            or any(f"{path}/".startswith(f"{prefix}/") for prefix in allowed)
        )

    def is_told(self, lines: int) -> bool:
        """Return whether all that was written down was said, and `lines` of it were heard."""
        with self.lock:
            asked = [item for path, item in self.scripts.items() if self.may_read(path)]
            told = all(pod.held or pod.refusal for pod in asked)
            return told and lines >= self.lines

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Every resource's watcher connects at once.
    request_queue_size = 128

    def __init__(self, double: ApiServerDouble) -> None:
        self.double = double
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that went away."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Say nothing."""

    def do_GET(self) -> None:
        """Answer a list, a watch, or anything else that was written down."""
        double, parsed = self.server.double, urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parsed.query).items()}
        double.seen.append(self.headers.get("Authorization") or "")
        with double.lock:
            double.requests[parsed.path] += 1
        script = double.scripts.get(parsed.path)
        if double.bearer and double.seen[-1] != f"Bearer {double.bearer}":
            self._send((401, "Unauthorized", "Unauthorized"))
        elif not double.may_read(parsed.path):
            self._send((403, "Forbidden", _forbidden(parsed.path, query)))
        elif parsed.path == "/api/v1/query" and double.series:
            self._send(self._queried(query["query"]))
        elif live := double.live.get(parsed.path):
            self.close_connection = True
            live(self.wfile, double.stopping, query)
        elif hostile := (
            "watch" in query and double.hostile_watches.get(parsed.path)
        ) or double.hostile.get(parsed.path):
            self.close_connection = True
            hostile(self.wfile, double.stopping)
        elif script is None:
            self._send(double.answers.get(parsed.path, (404, "NotFound", "not found")))
        elif script.refusal:
            self._send(script.refusal)
        elif "watch" in query:
            self._watch(script, query)
        else:
            self._send(self._listed(script, query))

    def _send(self, answer: Raw | Refusal) -> None:
        status = 200
        if isinstance(answer, tuple):
            status, reason, message = answer
            answer = {"kind": "Status", "code": status, "reason": reason, "message": message}
        body = orjson.dumps(answer)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in self.server.double.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _queried(self, query: str) -> Raw:
        found = (item for piece, item in self.server.double.series.items() if piece in query)
        return {"status": "success", "data": {"result": next(found, [])}}

    def _listed(self, script: Script, query: dict[str, str]) -> Raw | Refusal:
        with self.server.double.lock:
            script.asked.append(query)
            listing = script.lists[0]
            if isinstance(listing, tuple):
                script.lists.pop(0)
                return listing
            first = int(query.get("continue", "0"))
            if first and listing.expires:
                listing.expires -= 1
                return 410, "Expired", "The provided continue parameter is too old"
            end = first + int(query.get("limit", "1000000"))
            more = end < len(listing.items)
            if not more and len(script.lists) > 1:
                script.lists.pop(0)
        # As an API server does, items come without kind and apiVersion.
        items = [_without_kind(item) for item in listing.items[first:end]]
        metadata: Raw = {"resourceVersion": str(listing.version)} if listing.version else {}
        return {
            "kind": "List",
            "metadata": {**metadata, **({"continue": str(end)} if more else {})},
            "items": items,
        }

    def _watch(self, script: Script, query: dict[str, str]) -> None:
        with self.server.double.lock:
            script.asked.append(query)
            lines = script.watches.pop(0) if script.watches else []
            is_last = not script.watches
        if isinstance(lines, tuple):
            script.held = is_last
            self._send(lines)
            return
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        self.close_connection = True
        while (path := script.listed_on_disk) and not (path.exists() and path.stat().st_size):
            if self.server.double.stopping.wait(0.01):
                return
        for entry in lines:
            if entry == BREAK:
                self._chunk(b'{"type":"ADDED","obj')
                return
            if isinstance(entry, dict):
                with self.server.double.lock:
                    script.say(entry)
                self._say(entry)
        if CLOSE not in lines:
            script.held = is_last
            self.server.double.stopping.wait()
        self._chunk(b"")

    def _say(self, event: Raw) -> None:
        """Say an event in two pieces, as a slow network would bring it."""
        line = orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE)
        with self.server.double.lock:
            self.server.double.lines += 1
        self._chunk(line[: len(line) // 2])
        self._chunk(line[len(line) // 2 :])

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


def _forbidden(path: str, query: dict[str, str]) -> str:
    """Return the message of an API server whose RBAC denies a request.

    Source: kubernetes v1.34 apiserver pkg/endpoints/handlers/responsewriters/errors.go,
    forbiddenMessage.
    """
    _, api, *rest = path.split("/")
    group = rest[0] if api == "apis" else ""
    rest = rest[2:] if group else rest[1:]
    place = "at the cluster scope"
    if rest[0] == "namespaces" and len(rest) > 1:
        place = f'in the namespace "{rest[1]}"'
        rest = rest[2:] or ["namespaces"]
        verb = "get" if rest == ["namespaces"] else "list"
    else:
        verb = "list"
    verb = "watch" if "watch" in query else verb
    named = ".".join(filter(None, [rest[0], group]))
    user = "system:serviceaccount:team-a:recorder"
    return (
        f'{named} is forbidden: User "{user}" cannot {verb} resource "{rest[0]}" in API group '
        f'"{group}" {place}'
    )


def _without_kind(raw: Raw) -> Raw:
    return {name: value for name, value in raw.items() if name not in {"kind", "apiVersion"}}
