"""What the scheduler sends to its queue of profiles, so that hints decide by their arguments."""

from __future__ import annotations

from reprieve.queue.v1beta1 import queue_pb2
from reprieve.scheduler.v1beta1 import scheduler_pb2
from services.framework.cluster_event import ObjectEvent, Registration
from services.framework.plugins.in_tree import DEFAULT_PROFILE
from services.framework.plugins.pod_topology_spread.arguments import (
    DefaultingType,
    PodTopologySpreadArgs,
)
from services.framework.profile import Profile
from services.kube.node import LABEL_ZONE
from services.kube.selector import LabelSelector, TopologySpreadConstraint, UnsatisfiableAction
from services.kube.workloads import Service
from services.queue.config_codec import config_from_message
from services.queue.core.queued_pod import QueuedPod
from services.scheduler.batch import Batch
from services.scheduler.configuration import queue_config_of, read_configuration
from services.scheduler.core.decisions import Decision
from services.scheduler.core.queueing.mirror import QUEUE_TRAITS
from services.scheduler.core.queueing.steps import CommitUnschedulable, Head, PopId
from services.scheduler.core.session.options import RULES, SchedulerOptions
from services.scheduler.core.session.scheduler import Scheduler
from services.scheduler.step_encoder import StepEncoder
from tests.builders import make_node, make_pod, requirement

FILE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: plain
- schedulerName: picky
  pluginConfig:
  - name: NodeAffinity
    args:
      addedAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms:
          - matchExpressions: [{key: disk, operator: In, values: [ssd]}]
  - name: PodTopologySpread
    args:
      defaultingType: List
      defaultConstraints:
      - {maxSkew: 1, topologyKey: rack, whenUnsatisfiable: DoNotSchedule}
"""


def asked(rules: str = "") -> queue_pb2.QueueConfig:
    """Return what the scheduler asks of its queue under the file."""
    config = scheduler_pb2.SchedulerConfig(kube_scheduler_configuration=FILE)
    config.queue.rules = rules
    return queue_config_of(config, read_configuration(config))


def says(plugin: str, registrations: tuple[Registration, ...], scheduler: str) -> bool:
    """Return what a plugin's hint answers to a new node without labels."""
    spec = make_pod().scheduler(scheduler).obj().spec
    pod = QueuedPod(uid="u", namespace="default", name="p", spec=spec)
    event = ObjectEvent.of("NodeAdd", None, make_node("n").obj())
    (hint,) = [
        registration.hint
        for registration in registrations
        if registration.plugin == plugin and registration.event == event.event and registration.hint
    ]
    return hint(pod, event)


def test_hints_go_by_the_arguments_of_the_pods_profile() -> None:
    """The node lacks what the one profile adds, and the label that it spreads by."""
    registrations = config_from_message(asked()).registrations
    for plugin in ("NodeAffinity", "PodTopologySpread"):
        assert says(plugin, registrations, "plain")
        assert not says(plugin, registrations, "picky")


def test_only_a_queue_with_hints_receives_profiles() -> None:
    """And only of those that add anything; the older modes would refuse it."""
    assert [profile.scheduler_name for profile in asked().profiles] == ["picky"]
    assert not asked("v1.20").profiles


def refused_by_defaults() -> Decision:
    """Return how a pod is returned that no node's zone label lets in."""
    constraint = TopologySpreadConstraint(
        max_skew=1, topology_key=LABEL_ZONE, when_unsatisfiable=UnsatisfiableAction.DO_NOT_SCHEDULE
    )
    args = PodTopologySpreadArgs(
        default_constraints=(constraint,), defaulting_type=DefaultingType.LIST
    )
    profile = Profile(plugins=DEFAULT_PROFILE.plugins, args={"PodTopologySpread": args})
    options = SchedulerOptions(
        rules=RULES["v1.34"], queue=QUEUE_TRAITS["v1.34"], profiles=(profile,)
    )
    scheduler = Scheduler(options)
    scheduler.put_object(Service(namespace="default", name="s", selector={"app": "web"}))
    scheduler.put_node(make_node("a").obj())
    pod = make_pod().label("app", "web").obj()
    scheduler.put_pod(pod)
    head = Head(pop=PopId(pod.uid, 1), attempts=1, first_enqueued_ns=0, queued_ns=0)
    return scheduler.decide(head, 0)


def test_a_refusal_by_default_constraints_says_which_pods_were_counted() -> None:
    """Those that the pod's service selects."""
    decision = refused_by_defaults()
    (step,) = decision.steps
    assert isinstance(step, CommitUnschedulable)
    assert step.why.plugins == ("PodTopologySpread",)
    counted = LabelSelector(requirements=(requirement("app", "In", "web"),))
    assert step.why.spread_selector == counted
    encoder = StepEncoder({}, lambda _pod: b"", lambda _namespace: {}, lambda _: True)
    batch = Batch(encoder, 0)
    batch.add(decision, 0)
    (message,) = batch.operations[0].commit_unschedulable.failures
    (told,) = message.default_spread_selector.match_expressions
    assert (told.key, told.operator, list(told.values)) == ("app", "In", ["web"])
