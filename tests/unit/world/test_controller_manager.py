"""The list of controllers: who receives what, and in which order they run."""

from __future__ import annotations

from collections import Counter
from unittest.mock import Mock

from replay.world.api.cluster import Changed
from replay.world.api.pod_record import PodRecord
from replay.world.controller import NEVER_NS, Controller
from replay.world.controllers.autoscaling.node_groups import Autoscaling
from replay.world.timeline import ActionKind
from reprieve.autoscaler.v1beta1.autoscaler_pb2 import AutoscalerConfig
from tests.unit.world.builders import S, World, create, create_pod, delete, make_node, make_pod


class Adding(Controller):
    """Adds a node where there is none, as an autoscaler would."""

    def reconcile(self, now_ns: int, changed: Changed) -> None:
        """Add a node for the first pods that are pending."""
        if changed.pods and not self._cluster.nodes:
            self._cluster.put_node(now_ns, make_node("added"))


class Watching(Controller):
    """Keeps what it sees of each round, and what is put and removed."""

    watches = frozenset({"Node"})
    rounds: list[tuple[list[str], list[str]]]
    requests: list[str]

    def put(self, _now_ns: int, message: object) -> None:
        """Keep a request."""
        self.requests.append(f"put {message.node.metadata.name}")  # type: ignore[attr-defined] # a node

    def remove(self, _now_ns: int, ref: object) -> None:
        """Keep a request."""
        self.requests.append(f"remove {ref.name}")  # type: ignore[attr-defined] # a reference

    def reconcile(self, _now_ns: int, changed: Changed) -> None:
        """Keep the pods and nodes that have changed."""
        self.rounds.append((list(changed.pods), list(changed.nodes)))


class Concerned(Controller):
    """Is concerned with one pod, and acts a second later."""

    def concerns(self, pod: PodRecord) -> bool:
        """Return whether it is that pod."""
        return pod.uid == "uid-mine"

    def wakeup_ns(self, now_ns: int, ended: int) -> int:
        """Return a second from now, for each pod."""
        return now_ns + ended * S


def test_every_planned_action_is_of_one_controller() -> None:
    """A scheduling cycle's end, a preemption and a binding that waits are the scheduler's."""
    autoscaling = Autoscaling(config=AutoscalerConfig(), groups=())
    controllers = World(autoscaler=Mock(), autoscaling=autoscaling).manager.controllers
    kinds = Counter(kind for controller in controllers for kind in controller.actions)
    of_scheduler = {
        ActionKind.CYCLE,
        ActionKind.PREEMPTION,
        ActionKind.DEVICE_READY,
        ActionKind.DEVICE_WAIT,
    }
    assert kinds == Counter(set(ActionKind) - of_scheduler)


def test_every_kind_of_object_is_stored_by_one_controller_at_most() -> None:
    """And a controller that stores objects need not watch them, as others may."""
    controllers = World().manager.controllers
    kinds = Counter(kind for controller in controllers for kind in controller.keeps)
    assert set(kinds.values()) == {1}
    assert not any(controller.keeps & controller.watches for controller in controllers)


def test_a_controller_sees_in_the_same_round_what_one_before_it_has_done() -> None:
    """And one before it sees that in the next round only."""
    world = World()
    before, after = Watching(world.state), Watching(world.state)
    world.run((before, Adding(world.state), after))
    world.feed(0, create_pod(make_pod("p")))
    assert before.rounds[0] == (["uid-p"], [])
    assert after.rounds[0] == (["uid-p"], ["added"])


def test_objects_of_users_reach_the_controllers_that_watch_their_kind() -> None:
    """Also where another controller stores them."""
    world = World()
    watching = Watching(world.state)
    world.run((*world.manager.controllers, watching))
    world.feed(0, create(make_node("n")), create_pod(make_pod("p")), delete("Node", "n"))
    assert watching.requests == ["put n", "remove n"]
    assert not world.cluster.nodes


def test_look_ahead_learns_of_each_controller_that_may_act() -> None:
    """On a pod, or once more pods have ended."""
    world = World()
    world.feed(0, create_pod(make_pod("mine")), create_pod(make_pod("other")))
    mine, other = world.pod("mine"), world.pod("other")
    assert not world.manager.concerns(mine)
    assert world.manager.wakeup_ns(S, 2) == NEVER_NS
    world.run((*world.manager.controllers, Concerned(world.state)))
    assert (world.manager.concerns(mine), world.manager.concerns(other)) == (True, False)
    assert world.manager.wakeup_ns(S, 2) == 3 * S
