"""Closed, missed and repeated watches and lists: the frames reproduce the server's state."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.importers.kubernetes.watch_coverage import GAP
from replay.record.store import GoneError, Listing, ResourceStore, WatchError, WatchEvent
from tests.api_server import Raw
from tests.unit.importers.builders import make_pod
from tests.unit.record.recording import event, gone, resource

NAMES = st.integers(0, 4)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), NAMES),
        st.tuples(st.just("delete"), NAMES),
        st.tuples(st.sampled_from(["watch", "list", "broken list"]), st.just(0)),
    ),
    max_size=60,
)


class Server:
    """A store of pods with one version for all, and the log of what happened to them."""

    def __init__(self) -> None:
        self.version = 1
        self.pods: dict[int, Raw] = {}
        self.log: list[tuple[int, Raw]] = []

    def write(self, name: int) -> None:
        """Create a pod, or change it."""
        self.version += 1
        known = self.pods.get(name)
        uid = known["metadata"]["uid"] if known else f"uid-{self.version}"
        self.pods[name] = make_pod(f"p{name}", self.version, metadata={"uid": uid})
        type_ = "MODIFIED" if known else "ADDED"
        self.log.append((self.version, event(type_, self.pods[name])))

    def delete(self, name: int) -> None:
        """Delete a pod where it is there."""
        if (known := self.pods.pop(name, None)) is None:
            return
        self.version += 1
        metadata = {**known["metadata"], "resourceVersion": str(self.version)}
        self.log.append((self.version, event("DELETED", {**known, "metadata": metadata})))

    def state(self) -> dict[str, str]:
        """Return the version of each pod by its UID."""
        own = [pod["metadata"] for pod in self.pods.values()]
        return {meta["uid"]: meta["resourceVersion"] for meta in own}


class Client:
    """Follows a server, and keeps what the frames tell."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.followed = ResourceStore(resource("Pod"), 1 << 30)
        self.frames: list[WatchEvent] = []

    def watch(self) -> None:
        """Receive all changes after the last seen version."""
        since = int(self.followed.version)
        for version, said in self.server.log:
            if version > since and (frame := self.followed.event(said["type"], said["object"])):
                self.frames.append(frame)

    def lists(self, *, breaks: bool) -> None:
        """List in pages of two; a list that breaks is begun and not ended."""
        listing = Listing()
        items = list(self.server.pods.values())
        for at in range(0, len(items), 2):
            self.frames += self.followed.page(listing, items[at : at + 2])
            if breaks:
                return
        self.frames += self.followed.end_list(
            listing, str(self.server.version), {"message": "too old"}
        )

    def state(self) -> dict[str, str]:
        """Return what the frames lead to."""
        state: dict[str, str] = {}
        for frame in self.frames:
            own = frame.object.get("metadata", {})
            if frame.type == "DELETED":
                del state[own["uid"]]
            elif frame.type in {"ADDED", "MODIFIED"}:
                state[own["uid"]] = own["resourceVersion"]
        return state


@given(STEPS)
def test_the_frames_lead_to_what_the_server_has(steps: list[tuple[str, int]]) -> None:
    """And no frame repeats an earlier event."""
    server = Server()
    client = Client(server)
    for what, name in steps:
        match what:
            case "write":
                server.write(name)
            case "delete":
                server.delete(name)
            case "list" | "broken list":
                client.lists(breaks=what != "list")
            case "watch" if client.followed.lists:
                client.watch()
    client.lists(breaks=False)
    server.write(0)
    client.watch()
    assert client.state() == server.state()
    assert client.followed.objects == len(server.pods)
    identities = [_identity(frame) for frame in client.frames if frame.type != GAP]
    assert len(identities) == len(set(identities))


def _identity(frame: WatchEvent) -> tuple[str, str, str]:
    metadata = frame.object["metadata"]
    return frame.type, metadata["uid"], metadata["resourceVersion"]


def test_repeated_events_are_reported_once() -> None:
    """As after a watch that began too early."""
    server = Server()
    server.write(1)
    client = Client(server)
    client.lists(breaks=False)
    server.delete(1)
    client.watch()
    before = list(client.frames)
    client.followed.event("DELETED", server.log[-1][1]["object"])
    assert client.frames == before


def test_what_was_deleted_meanwhile_has_its_last_state_and_the_lists_version() -> None:
    """So that it stands behind all that was seen of it."""
    server = Server()
    server.write(1)
    client = Client(server)
    client.lists(breaks=False)
    server.delete(1)
    server.write(2)
    client.lists(breaks=False)
    deleted = next(frame for frame in client.frames if frame.type == "DELETED")
    assert deleted.object["metadata"]["resourceVersion"] == str(server.version)
    assert deleted.object["spec"] == make_pod("p1", 2)["spec"]


def test_errors_of_a_watch_part_what_is_too_old_from_all_else() -> None:
    """The first needs a list, the others a while."""
    followed = ResourceStore(resource("Pod"), 1 << 30)
    with pytest.raises(GoneError, match="too old"):
        followed.event("ERROR", gone()["object"])
    with pytest.raises(WatchError, match="InternalError: etcd"):
        followed.event("ERROR", {"code": 500, "reason": "InternalError", "message": "etcd"})
    with pytest.raises(WatchError, match="without an object"):
        followed.event("ADDED", {})
