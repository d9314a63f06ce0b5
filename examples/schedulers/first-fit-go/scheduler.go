package main

import (
	"sort"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	kube "reprieve.internal/kube/v1beta1"
	pb "reprieve.internal/scheduler/v1beta1"
	session "reprieve.internal/session/v1beta1"
)

const (
	second         = int64(1_000_000_000)
	longestBackoff = 10 * second
	mostOutcomes   = 1024
	mostBytes      = 1024 * 1024 // of outcomes, so that no message exceeds 2 MiB
)

// Scheduler gives each pod to the first node that it fits on. It keeps a list of pending pods.
type Scheduler struct {
	cluster Cluster
	waiting map[string]*Entry // by uid
	assumed map[string]*Entry // by uid: the bindings that were sent and are not answered
	arrived int64             // pods so far
	cycle   int64
	atNs    int64
}

// Entry is a pending pod. It is ready when it is to be tried, from notBefore on.
type Entry struct {
	uid                      string
	order                    int64
	attempts                 int32
	first, queued, notBefore int64
	ready                    bool
}

// A Change is an event that was read: exactly one of node, pod, patch and remove, or none for what
// does not matter here.
type Change struct {
	atNs   int64
	node   *Node
	pod    *Pod
	patch  *pb.PodPatch
	remove *kube.ObjectReference
}

func newScheduler() *Scheduler {
	return &Scheduler{
		cluster: Cluster{pods: map[string]*Pod{}},
		waiting: map[string]*Entry{},
		assumed: map[string]*Entry{},
	}
}

// run takes a round whose events were read. Nothing can fail from here on.
func (s *Scheduler) run(round *pb.Round, changes []Change) *pb.RoundOutcomes {
	s.atNs = round.TimeNs
	for _, answer := range round.Answers {
		s.answered(answer)
	}
	for _, change := range changes {
		s.take(change)
	}
	outcomes := &pb.RoundOutcomes{}
	if round.EventsOnly {
		return outcomes
	}
	most := mostOutcomes
	if round.MaxPods != nil && int(round.GetMaxPods()) < most {
		most = int(round.GetMaxPods())
	}
	due := s.due()
	size := 0
	for _, entry := range due {
		if len(outcomes.Outcomes) == most || size > mostBytes {
			outcomes.More = true
			break
		}
		outcome := s.attempt(entry)
		outcomes.Outcomes = append(outcomes.Outcomes, outcome)
		size += proto.Size(outcome)
	}
	for _, entry := range s.waiting {
		if entry.ready && entry.notBefore > s.atNs &&
			(outcomes.NextWakeupTimeNs == nil || entry.notBefore < *outcomes.NextWakeupTimeNs) {
			outcomes.NextWakeupTimeNs = proto.Int64(entry.notBefore)
		}
	}
	// Nothing that only says how a pod fares changes a decision here, and nothing at all does while
	// no pod waits.
	outcomes.MayWait = pb.MayWait_MAY_WAIT_STATUS
	if len(s.waiting) == 0 {
		outcomes.MayWait = pb.MayWait_MAY_WAIT_ALL
	}
	return outcomes
}

// answered notes what became of a binding: a pod that was refused its node is tried again.
func (s *Scheduler) answered(answer *pb.Answer) {
	uid := answer.Pop.Uid
	entry, pod := s.assumed[uid], s.cluster.pods[uid]
	delete(s.assumed, uid)
	if entry == nil || pod == nil || answer.GetRefused() != pb.RefusalStage_REFUSAL_STAGE_BIND {
		return
	}
	s.putPod(s.atNs, uid, &Pod{pod.Pod, pod.requests, ""})
	if s.waiting[uid] != nil { // else it is being deleted
		entry.ready = true
		s.waiting[uid] = entry
	}
}

func (s *Scheduler) take(change Change) {
	switch {
	case change.node != nil:
		s.cluster.putNode(change.node)
		s.retry()
	case change.pod != nil:
		pod := change.pod
		if old := s.cluster.pods[pod.Metadata.Uid]; old != nil && pod.node == "" {
			pod.node = old.node // what is assumed holds until it is refused
		}
		s.putPod(change.atNs, pod.Metadata.Uid, pod)
		if entry := s.waiting[pod.Metadata.Uid]; entry != nil {
			entry.ready = true // it may tolerate more now
		}
	case change.patch != nil:
		if old := s.cluster.pods[change.patch.Pod.Uid]; old != nil {
			s.putPod(change.atNs, change.patch.Pod.Uid, old.patched(change.patch))
		}
	case change.remove.GetKind() == "Pod":
		s.putPod(change.atNs, change.remove.Uid, nil)
	case change.remove.GetKind() == "Node":
		s.cluster.removeNode(change.remove.Name)
	}
}

func (s *Scheduler) putPod(atNs int64, uid string, pod *Pod) {
	was, is := s.cluster.putPod(uid, pod)
	if is == Pending && was != Pending {
		s.arrived++
		s.waiting[uid] = &Entry{
			uid: uid, order: s.arrived, first: atNs, queued: atNs, notBefore: atNs, ready: true,
		}
	} else if is != Pending {
		delete(s.waiting, uid)
	}
	if was == Assigned && is != Assigned {
		s.retry()
	}
}

// patched returns the pod with a part of it changed.
func (p *Pod) patched(patch *pb.PodPatch) *Pod {
	message := proto.Clone(p.Pod).(*kube.Pod)
	node := p.node
	if name := patch.GetNodeName(); name != "" {
		node = name
	}
	if patch.Status != nil {
		message.Status = patch.Status
	}
	if patch.DeletionTimeNs != nil {
		ns := patch.GetDeletionTimeNs()
		message.Metadata.DeletionTimestamp =
			&timestamppb.Timestamp{Seconds: ns / second, Nanos: int32(ns % second)}
	}
	return &Pod{message, p.requests, node}
}

// retry lets every pod be tried again after its backoff, for there may be room now.
func (s *Scheduler) retry() {
	for _, entry := range s.waiting {
		entry.ready = true
	}
}

// due returns the pods to be tried now: the more important ones first, then those that wait longer.
func (s *Scheduler) due() []*Entry {
	var due []*Entry
	for _, entry := range s.waiting {
		if entry.ready && entry.notBefore <= s.atNs {
			due = append(due, entry)
		}
	}
	priority := func(entry *Entry) int32 { return s.cluster.pods[entry.uid].GetSpec().GetPriority() }
	sort.Slice(due, func(i, j int) bool {
		a, b := due[i], due[j]
		if first, second := priority(a), priority(b); first != second {
			return first > second
		}
		return a.queued < b.queued || a.queued == b.queued && a.order < b.order
	})
	return due
}

// attempt decides about one pod.
func (s *Scheduler) attempt(entry *Entry) *pb.Outcome {
	s.cycle++
	entry.attempts++
	outcome := &pb.Outcome{
		Pop:                 &session.PopId{Uid: entry.uid, Cycle: s.cycle},
		TimeNs:              s.atNs,
		Attempts:            entry.attempts,
		FirstEnqueuedTimeNs: proto.Int64(entry.first),
		QueuedTimeNs:        proto.Int64(entry.queued),
	}
	entry.ready, entry.queued, entry.notBefore = false, s.atNs, s.atNs+backoff(entry.attempts)
	pod := s.cluster.pods[entry.uid]
	bind, refusal := s.cluster.firstFit(pod)
	if bind == nil {
		outcome.Decision = &pb.Outcome_Unschedulable{Unschedulable: refusal}
		return outcome
	}
	s.cluster.putPod(entry.uid, &Pod{pod.Pod, pod.requests, bind.NodeName})
	delete(s.waiting, entry.uid)
	s.assumed[entry.uid] = entry
	outcome.Decision = &pb.Outcome_Bind{Bind: bind}
	return outcome
}

// backoff returns how long a pod is left alone after an attempt: 1 s, 2 s, 4 s, 8 s, then 10 s.
func backoff(attempts int32) int64 {
	if attempts > 4 {
		return longestBackoff
	}
	return second << (attempts - 1)
}
