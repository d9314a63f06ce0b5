package main

import (
	"fmt"
	"sort"
	"strconv"
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
	ports         map[HostPort]int64 // with the number of pods that hold each
}

// HostPort is a port of a node that a pod takes; the address 0.0.0.0 stands for all.
type HostPort struct {
	address, protocol string
	number            int32
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
		ports:         map[HostPort]int64{},
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
	for _, port := range pod.hostPorts() {
		n.ports[port] += sign
	}
}

// hostPorts returns the ports of the node that the pod's containers and sidecars take.
func (p *Pod) hostPorts() (ports []HostPort) {
	running := append([]*kube.Container{}, p.GetSpec().GetContainers()...)
	for _, container := range p.GetSpec().GetInitContainers() {
		if container.GetRestartPolicy() == "Always" {
			running = append(running, container)
		}
	}
	for _, container := range running {
		for _, port := range container.GetPorts() {
			if port.GetHostPort() == 0 {
				continue
			}
			taken := HostPort{port.GetHostIp(), port.GetProtocol(), port.GetHostPort()}
			if taken.address == "" {
				taken.address = everyAddress
			}
			if taken.protocol == "" {
				taken.protocol = "TCP"
			}
			ports = append(ports, taken)
		}
	}
	return ports
}

const everyAddress = "0.0.0.0"

// holds returns whether a pod of the node holds the port at an address that overlaps.
func (n *Node) holds(port HostPort) bool {
	for other, pods := range n.ports {
		isSame := other.number == port.number && other.protocol == port.protocol
		isEvery := other.address == everyAddress || port.address == everyAddress
		if pods > 0 && isSame && (isEvery || other.address == port.address) {
			return true
		}
	}
	return false
}

// matchesAffinity returns whether the node is one that the pod's node affinity requires.
func (n *Node) matchesAffinity(pod *Pod) bool {
	affinity := pod.GetSpec().GetAffinity().GetNodeAffinity()
	required := affinity.GetRequiredDuringSchedulingIgnoredDuringExecution()
	if required == nil {
		return true
	}
	fields := map[string]string{"metadata.name": n.name}
	for _, term := range required.GetNodeSelectorTerms() {
		conditions := len(term.GetMatchExpressions()) + len(term.GetMatchFields())
		if conditions > 0 && meetAll(term.GetMatchExpressions(), n.labels) &&
			meetAll(term.GetMatchFields(), fields) {
			return true
		}
	}
	return false
}

// meetAll returns whether labels, or fields, meet all conditions.
func meetAll(conditions []*kube.NodeSelectorRequirement, labels map[string]string) bool {
	for _, condition := range conditions {
		value, ok := labels[condition.GetKey()]
		isListed := false
		for _, listed := range condition.GetValues() {
			isListed = isListed || ok && listed == value
		}
		meets := false
		switch condition.GetOperator() {
		case "In":
			meets = isListed
		case "NotIn":
			meets = !isListed
		case "Exists":
			meets = ok
		case "DoesNotExist":
			meets = !ok
		case "Gt", "Lt":
			has, errHas := strconv.ParseInt(value, 10, 64)
			if ok && errHas == nil && len(condition.GetValues()) == 1 {
				bound, err := strconv.ParseInt(condition.GetValues()[0], 10, 64)
				isGreater := condition.GetOperator() == "Gt"
				meets = err == nil && (isGreater && has > bound || !isGreater && has < bound)
			}
		}
		if !meets {
			return false
		}
	}
	return true
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
	if !n.matchesAffinity(pod) {
		return "NodeAffinity", []string{"node(s) didn't match Pod's node affinity/selector"}
	}
	for _, port := range pod.hostPorts() {
		if n.holds(port) {
			return "NodePorts", []string{"node(s) didn't have free ports for the requested pod ports"}
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
