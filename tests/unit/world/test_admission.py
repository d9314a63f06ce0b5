"""PriorityClass and what it gives to pods."""

from __future__ import annotations

import pytest

from replay.world.api.admission.priority import PriorityAdmission
from replay.world.api.admission.refusal import AdmissionError
from tests.unit.world.builders import World, create, create_pod, delete, make_class, make_pod


def admitted(
    admission: PriorityAdmission, class_name: str = "", policy: str = ""
) -> tuple[object, ...]:
    """Return class, priority and policy of a pod that requests a class."""
    pod = make_pod(priority=None)
    pod.spec.priority_class_name = class_name
    if policy:
        pod.spec.preemption_policy = policy
    assert admission.admit(pod) == ""
    return pod.spec.priority_class_name, pod.spec.priority, pod.spec.preemption_policy


def test_a_pod_takes_value_and_policy_of_its_class() -> None:
    """The class gives both."""
    admission = PriorityAdmission()
    admission.put_class(make_class("high", 1000, policy="Never"))
    assert admitted(admission, "high") == ("high", 1000, "Never")


def test_without_a_class_and_a_default_the_priority_is_0() -> None:
    """Upstream fills in the policy too."""
    assert admitted(PriorityAdmission()) == ("", 0, "PreemptLowerPriority")


def test_without_a_class_the_global_default_is_taken_by_name() -> None:
    """The pod is given the default's name as well."""
    admission = PriorityAdmission()
    admission.put_class(make_class("usual", 7, default=True))
    assert admitted(admission) == ("usual", 7, "PreemptLowerPriority")


def test_the_system_classes_are_always_there() -> None:
    """Nobody creates them, and deleting one does nothing."""
    admission = PriorityAdmission()
    admission.remove_class("system-node-critical")
    assert admitted(admission, "system-node-critical")[1] == 2_000_001_000
    assert admitted(admission, "system-cluster-critical")[1] == 2_000_000_000


def test_a_pod_of_an_unknown_class_is_refused_in_upstreams_words() -> None:
    """And it is left as it was."""
    pod = make_pod(priority=None)
    pod.spec.priority_class_name = "none"
    with pytest.raises(AdmissionError, match="no PriorityClass with name none was found"):
        PriorityAdmission().admit(pod)
    assert not pod.spec.HasField("priority")


@pytest.mark.parametrize("class_name", ["", "high"])
def test_a_pods_preemption_policy_must_equal_its_priority_class(class_name: str) -> None:
    """Not even without a class, since the policy is then the usual one."""
    admission = PriorityAdmission()
    admission.put_class(make_class("high", 1000))
    pod = make_pod(priority=None)
    pod.spec.priority_class_name, pod.spec.preemption_policy = class_name, "Never"
    with pytest.raises(AdmissionError, match="preemptionPolicy Never must not be given"):
        admission.admit(pod)
    assert admitted(admission, class_name, "PreemptLowerPriority")[1] in (0, 1000)


def test_a_recorded_priority_is_kept_whatever_the_class_says() -> None:
    """With a note where the class is missing, or none is named."""
    admission = PriorityAdmission()
    pod = make_pod(priority=5)
    assert admission.admit(pod) == ""
    pod.spec.priority_class_name = "missing"
    assert "kept as recorded" in admission.admit(pod)
    pod.spec.priority_class_name = ""
    assert "kept as given" in admission.admit(pod)
    assert pod.spec.priority == 5


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("Upper", 1, "DNS subdomain"),
        ("", 1, "DNS subdomain"),
        ("a" * 254, 1, "DNS subdomain"),
        ("-a", 1, "DNS subdomain"),
        ("system-mine", 1, "reserved"),
        ("system-node-critical", 1, "system class"),
        ("big", 1_000_000_001, "1000000000"),
    ],
)
def test_a_class_is_refused_for(name: str, value: int, words: str) -> None:
    """A name that is no DNS subdomain, a reserved one, or too high a value."""
    with pytest.raises(AdmissionError, match=words):
        PriorityAdmission().put_class(make_class(name, value))


@pytest.mark.parametrize("value", [1_000_000_000, 0, -(2**31)])
def test_any_value_up_to_the_highest_of_users_is_taken(value: int) -> None:
    """Negative ones too."""
    admission = PriorityAdmission()
    admission.put_class(make_class("a.b-c", value))
    assert admitted(admission, "a.b-c")[1] == value


def test_value_and_policy_of_a_class_are_immutable() -> None:
    """Unless it is deleted and created again."""
    admission = PriorityAdmission()
    admission.put_class(make_class("high", 10))
    with pytest.raises(AdmissionError, match="value may not be changed"):
        admission.put_class(make_class("high", 11))
    with pytest.raises(AdmissionError, match="preemptionPolicy may not be changed"):
        admission.put_class(make_class("high", 10, policy="Never"))
    admission.put_class(make_class("high", 10, default=True))
    admission.remove_class("high")
    admission.put_class(make_class("high", 11, policy="Never"))
    assert admitted(admission, "high")[1:] == (11, "Never")


def test_one_class_at_most_is_the_default() -> None:
    """The one that is may be put again, and gives way when it is no longer marked."""
    admission = PriorityAdmission()
    admission.put_class(make_class("a", 1, default=True))
    admission.put_class(make_class("a", 1, default=True))
    with pytest.raises(AdmissionError, match="'a' is marked as globalDefault already"):
        admission.put_class(make_class("b", 2, default=True))
    admission.put_class(make_class("a", 1))
    admission.put_class(make_class("b", 2, default=True))
    assert [class_.name for class_ in admission.classes() if class_.global_default] == ["b"]


def test_pods_that_exist_keep_their_priority_when_classes_come_and_go() -> None:
    """Only new pods are concerned."""
    world = World()
    world.feed(0, create_pod(make_pod("early", priority=None)))
    world.feed(1, create(make_class("usual", 9, default=True)))
    world.feed(2, create_pod(make_pod("late", priority=None)))
    world.feed(3, delete("PriorityClass", "usual"))
    world.feed(4, create_pod(make_pod("last", priority=None)))
    assert [world.pod(name).priority for name in ("early", "late", "last")] == [0, 9, 0]
