"""The first requests of a recording: the server's version, and the source of usage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event, Thread
from typing import TypeVar

from replay.errors import ApiError, RecordError
from replay.kube import device_versions
from replay.kube.changes import parts
from replay.record.api import ApiServer
from replay.record.backoff import RETRIES_MAX, Backoff
from replay.record.http_client import STOPPED
from replay.record.usage_sources import ChosenSource, choose_source

_T = TypeVar("_T")
_START_S = 0.1
UNANSWERED = f"{STOPPED} before the API server answered; record for longer"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """The results of the first requests; `absent` are the namespaces that do not exist.

    `devices` is the version of resource.k8s.io that the server serves, "" for none.
    """

    version: str
    usage: ChosenSource
    absent: tuple[str, ...] = ()
    devices: str = ""


def connected(
    api: ApiServer, usage: str, keep_going: Callable[[], bool], namespaces: Sequence[str] = ()
) -> ServerFacts:
    """Request the server's version and choose the source of usage, while `keep_going`.

    `namespaces` are the recorded namespaces, () for all. The requests run in a separate thread,
    because a slow name server or exec plugin cannot be interrupted. Raises RecordError if no
    namespace exists.
    """
    answers: list[ServerFacts] = []
    failed: list[Exception] = []
    ended = Event()

    def connect() -> None:
        try:
            version = _ask_patiently(lambda: server_version(api), ended)
            absent = _ask_patiently(lambda: absent_namespaces(api, namespaces), ended)
            existing = [namespace for namespace in namespaces if namespace not in absent]
            if namespaces and not existing:
                problem = f"{', '.join(absent)}: no such namespace; check --namespace"
                raise RecordError(f"{api.address}: {problem}")
            source = _ask_patiently(lambda: choose_source(usage, api, existing), ended)
            devices = _ask_patiently(lambda: device_version(api), ended)
            facts = ServerFacts(version=version, usage=source, absent=absent, devices=devices)
            answers.append(facts)
        except Exception as error:
            failed.append(error)

    thread = Thread(target=connect, daemon=True)
    thread.start()
    thread.join(_START_S)
    try:
        while thread.is_alive() and keep_going():
            thread.join(_START_S)
    finally:
        if thread.is_alive():
            ended.set()
            api.stop()
    if failed:
        raise failed[0]
    if not answers:
        raise RecordError(f"{api.address}: {UNANSWERED}")
    return answers[0]


def server_version(api: ApiServer) -> str:
    """Return the version of an API server. Raises RecordError if it does not answer."""
    return api.shown(str(api.get("/version").get("gitVersion") or ""))


def device_version(api: ApiServer) -> str:
    """Return the version of resource.k8s.io to record devices by; "" if none is served.

    For a user who may not ask which versions are served, that is the newest.
    """
    try:
        group = api.get(f"/apis/{device_versions.GROUP}")
    except ApiError as error:
        if error.status == 403:
            return device_versions.READ[0]
        if error.status == 404:
            return ""
        raise
    served = {str(version.get("version")) for version in parts(group, "versions")}
    return next((version for version in device_versions.READ if version in served), "")


def absent_namespaces(api: ApiServer, namespaces: Sequence[str]) -> tuple[str, ...]:
    """Return the namespaces that do not exist, if the user may read namespaces.

    The check is needed because a list in a missing namespace is empty, and not an error.
    """
    return tuple(namespace for namespace in namespaces if _is_absent(api, namespace))


def _is_absent(api: ApiServer, namespace: str) -> bool:
    try:
        api.get(f"/api/v1/namespaces/{namespace}")
    except ApiError as error:
        if error.status == 404:
            return True
        if error.status != 403:
            raise
    return False


def _ask_patiently(ask: Callable[[], _T], ended: Event) -> _T:
    """Return the result of `ask`; repeat it on the server's Retry-After.

    Source: kubernetes v1.34 client-go rest/with_retry.go (IsNextRetry).
    """
    backoff = Backoff()
    for _ in range(RETRIES_MAX):
        backoff.begin()
        try:
            return ask()
        except RecordError as error:
            if not error.retry_after_s or ended.wait(backoff.wait_s(error.retry_after_s)):
                raise
    return ask()
