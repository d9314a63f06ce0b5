package main

import (
	"fmt"
	"sort"
	"strings"

	kube "reprieve.internal/kube/v1beta1"
	pb "reprieve.internal/scheduler/v1beta1"
)

// Cluster holds nodes in the order in which they came, and what the pods on them take.
type Cluster struct {
	nodes []*Node
	pods  map[string]*Pod // by uid
}

// Node is a node as the filters read it.
type Node struct {
	name          string
	labels        map[string]string
	taints        []*kube.Taint
	unschedulable bool
	room, used    Amounts
	pods          int64
}

// Pod is a pod with what it asks for. Its node is the one that it is bound to, or assumed to be. A
// Pod is never changed, only replaced.
type Pod struct {
	*kube.Pod
	requests Amounts
	node     string
}

// A Standing is what a pod is for a scheduler.
type Standing int

const (
	Ended    Standing = iota // not there, or over
	Ignored                  // another scheduler's, gated, or being deleted
	Pending                  // to be scheduled
	Assigned                 // on a node
)

func (p *Pod) standing() Standing {
	switch phase := p.GetStatus().GetPhase(); {
	case phase == "Succeeded" || phase == "Failed":
		return Ended
	case p.node != "":
		return Assigned
	}
	name := p.GetSpec().GetSchedulerName()
	isOurs := name == "" || name == "default-scheduler"
	isGated := len(p.GetSpec().GetSchedulingGates()) > 0
	if !isOurs || isGated || p.GetMetadata().GetDeletionTimestamp() != nil {
		return Ignored
	}
	return Pending
}

// readNode makes a Node of a message.
func readNode(message *kube.Node) (*Node, error) {
	quantities := message.GetStatus().GetAllocatable()
	if len(quantities) == 0 {
		quantities = message.GetStatus().GetCapacity()
	}
	room, err := parseAmounts(quantities)
	if err != nil {
		return nil, err
	}
	return &Node{
		name:          message.GetMetadata().GetName(),
		labels:        message.GetMetadata().GetLabels(),
		taints:        message.GetSpec().GetTaints(),
		unschedulable: message.GetSpec().GetUnschedulable(),
		room:          room,
		used:          Amounts{},
	}, nil
}

// readPod makes a Pod of a message. What it asks for is what its containers do together, or the
// largest moment of its start: init containers run one after the other, sidecars stay.
func readPod(message *kube.Pod) (*Pod, error) {
	spec := message.GetSpec()
	requests, sidecars, starting := Amounts{}, Amounts{}, Amounts{}
	for _, container := range spec.GetContainers() {
		asked, err := parseAmounts(container.GetResources().GetRequests())
		if err != nil {
			return nil, err
		}
		requests.add(asked, 1)
	}
	for _, container := range spec.GetInitContainers() {
		asked, err := parseAmounts(container.GetResources().GetRequests())
		if err != nil {
			return nil, err
		}
		if container.GetRestartPolicy() == "Always" {
			requests.add(asked, 1)
			sidecars.add(asked, 1)
			starting.raise(sidecars)
		} else {
			asked.add(sidecars, 1)
			starting.raise(asked)
		}
	}
	requests.raise(starting)
	whole, err := parseAmounts(spec.GetResources().GetRequests())
	if err != nil {
		return nil, err
	}
	for name, amount := range whole { // requests of the pod as a whole stand before the sum
		requests[name] = amount
	}
	overhead, err := parseAmounts(spec.GetOverhead())
	if err != nil {
		return nil, err
	}
	requests.add(overhead, 1)
	return &Pod{message, requests, spec.GetNodeName()}, nil
}

func (c *Cluster) putNode(node *Node) {
	for _, pod := range c.pods {
		if pod.node == node.name && pod.standing() == Assigned {
			node.count(pod, 1)
		}
	}
	for index, each := range c.nodes {
		if each.name == node.name {
			c.nodes[index] = node
			return
		}
	}
	c.nodes = append(c.nodes, node)
}

func (c *Cluster) removeNode(name string) {
	for index, each := range c.nodes {
		if each.name == name {
			c.nodes = append(c.nodes[:index], c.nodes[index+1:]...)
			return
		}
	}
}

// putPod puts a pod in the place of the one with this uid, nil to remove it. It returns what the
// pod was and what it is now.
func (c *Cluster) putPod(uid string, pod *Pod) (was, is Standing) {
	if old := c.pods[uid]; old != nil {
		was = old.standing()
		c.count(old, -1)
	}
	if pod == nil {
		delete(c.pods, uid)
		return was, Ended
	}
	c.pods[uid] = pod
	c.count(pod, 1)
	return was, pod.standing()
}

func (c *Cluster) count(pod *Pod, sign int64) {
	if pod.standing() != Assigned {
		return
	}
	for _, node := range c.nodes {
		if node.name == pod.node {
			node.count(pod, sign)
		}
	}
}

func (n *Node) count(pod *Pod, sign int64) {
	n.pods += sign
	n.used.add(pod.requests, sign)
}

// firstFit returns the first node that the pod fits on, or why no node takes it.
func (c *Cluster) firstFit(pod *Pod) (*pb.Bind, *pb.Unschedulable) {
	counts, plugins := map[string]int32{}, map[string]bool{}
	for index, node := range c.nodes {
		plugin, reasons := node.refusal(pod)
		if plugin == "" {
			return &pb.Bind{
				NodeName:       node.name,
				EvaluatedNodes: int32(index + 1),
				FeasibleNodes:  1,
				TiedNodes:      1,
			}, nil
		}
		plugins[plugin] = true
		for _, reason := range reasons {
			counts[reason]++
		}
	}
	return nil, unschedulable(len(c.nodes), counts, plugins)
}

// unschedulable says in kube-scheduler's words why a pod fits nowhere.
func unschedulable(nodes int, counts map[string]int32, plugins map[string]bool) *pb.Unschedulable {
	if nodes == 0 {
		return &pb.Unschedulable{Message: "no nodes available to schedule pods"}
	}
	verdict := &pb.Unschedulable{}
	var counted []string
	for reason, count := range counts {
		counted = append(counted, fmt.Sprintf("%d %s", count, reason))
		verdict.Reasons = append(verdict.Reasons, &pb.ReasonCount{Reason: reason, Nodes: count})
	}
	sort.Strings(counted)
	verdict.Message = fmt.Sprintf("0/%d nodes are available: %s.", nodes, strings.Join(counted, ", "))
	sort.Slice(verdict.Reasons, func(i, j int) bool {
		a, b := verdict.Reasons[i], verdict.Reasons[j]
		return a.Nodes > b.Nodes || a.Nodes == b.Nodes && a.Reason < b.Reason
	})
	for plugin := range plugins {
		verdict.UnschedulablePlugins = append(verdict.UnschedulablePlugins, plugin)
	}
	sort.Strings(verdict.UnschedulablePlugins)
	return verdict
}

var cordon = &kube.Taint{Key: "node.kubernetes.io/unschedulable", Effect: "NoSchedule"}

// refusal returns the first of upstream's plugins that refuses the pod, and why; "" where it fits.
func (n *Node) refusal(pod *Pod) (plugin string, reasons []string) {
	if n.unschedulable && !tolerates(pod, cordon) {
		return "NodeUnschedulable", []string{"node(s) were unschedulable"}
	}
	for _, taint := range n.taints {
		if taint.GetEffect() != "PreferNoSchedule" && !tolerates(pod, taint) {
			text := "node(s) had untolerated taint {%s: %s}"
			return "TaintToleration", []string{fmt.Sprintf(text, taint.GetKey(), taint.GetValue())}
		}
	}
	for key, value := range pod.GetSpec().GetNodeSelector() {
		if has, ok := n.labels[key]; !ok || has != value {
			return "NodeAffinity", []string{"node(s) didn't match Pod's node affinity/selector"}
		}
	}
	if n.pods+1 > n.room["pods"] {
		reasons = append(reasons, "Too many pods")
	}
	for name, amount := range pod.requests {
		if amount > 0 && amount > n.room[name]-n.used[name] {
			reasons = append(reasons, "Insufficient "+name)
		}
	}
	if len(reasons) > 0 {
		return "NodeResourcesFit", reasons
	}
	return "", nil
}

func tolerates(pod *Pod, taint *kube.Taint) bool {
	for _, each := range pod.GetSpec().GetTolerations() {
		isEffect := each.Effect == "" || each.Effect == taint.Effect
		isKey := each.Key == taint.Key || each.Key == "" && each.Operator == "Exists"
		if isEffect && isKey && (each.Operator == "Exists" || each.Value == taint.Value) {
			return true
		}
	}
	return false
}
