"""What a kubelet counts equals the sum over the pods of its node after any sequence of events."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from replay.world.api.pod_record import new_pod
from replay.world.kubelet.admission import KubeletAdmission, Unfit
from reprieve.kube.v1beta1 import node_pb2
from reprieve.trace.v1beta1 import trace_pb2
from services.rpc.kube.spec import PodSpecInterner
from tests import builders
from tests.unit.world.builders import S, World, bind, create, create_pod, delete, update

PODS = 6
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["create", "delete", "resize", "replace", "node", "end", "look"]),
        st.integers(0, PODS - 1),
        st.integers(1, 3),
    ),
    max_size=30,
)


def node(cpu: int) -> node_pb2.Node:
    """Return the node with so many CPUs."""
    return builders.make_node("n").capacity(cpu=str(cpu), memory="8Gi").message()


def pod(number: int, cpu: int) -> builders.PodBuilder:
    """Return a pod with so many CPUs and a host port."""
    made = builders.make_pod(f"p{number}").uid(f"uid-{number}").node("n" if number == 0 else "")
    return made.container("c", requests={"cpu": str(cpu)}).host_port(8000 + cpu)


def used(admission: KubeletAdmission) -> list[Unfit | None]:
    """Return why pods, each with another port, do not fit that request too much of everything.

    The reasons name what the other pods use, and the checks change nothing.
    """
    unfit: list[Unfit | None] = []
    for cpu in (1, 2, 3):
        message = pod(PODS, cpu).node("n").container("d", requests={"cpu": "99"}).message()
        unfit.append(admission.unfit(new_pod(0, message, trace_pb2.PodLife())[0]))
    return unfit


@settings(max_examples=200)
@given(_STEPS)
def test_a_kubelet_counts_the_pods_of_its_node(steps: list[tuple[str, int, int]]) -> None:
    """Pods come, end, go, are resized in place and replaced; checks come at any time."""
    world = World()
    world.feed(0, create(node(4)))
    for now_s, (step, number, cpu) in enumerate([("create", 1, 1), ("create", 2, 2), *steps], 1):
        stored = world.cluster.pods.get(f"uid-{number}")
        match step:
            case "create" if stored is None:
                life = {"service_duration_ns": 5 * S} if cpu == 3 else {}
                world.feed(now_s * S, create_pod(pod(number, cpu).message(), **life))
                if number:
                    world.outcomes.apply(now_s * S, [bind(f"uid-{number}", "n")])
            case "delete" if stored is not None:
                world.feed(now_s * S, delete("Pod", f"p{number}", grace_s=cpu))
            case "resize" | "replace" if stored is not None and not stored.is_terminal:
                changed = type(stored.message)()
                changed.CopyFrom(stored.message)
                if step == "resize":
                    changed.spec.containers[0].resources.requests["cpu"] = str(cpu)
                else:
                    changed.metadata.labels["step"] = str(now_s)
                world.feed(now_s * S, update(changed))
            case "node":
                world.feed(now_s * S, update(node(3 + cpu)))
            case "look":
                used(world.lifecycle.kubelet_admission)
        world.run_until(now_s * S)
    counted = used(world.lifecycle.kubelet_admission)
    assert None not in counted
    assert counted == used(KubeletAdmission(world.cluster, PodSpecInterner()))
