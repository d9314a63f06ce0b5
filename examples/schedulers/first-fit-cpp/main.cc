// first-fit-cpp is a scheduler for Reprieve in one file of C++17: each pod goes to the first node
// that it fits on. It places pods and reports in kube-scheduler's words why others wait; it never
// preempts. From top to bottom: quantities, the cluster and its filters, the pending pods, and the
// service with its sessions.
#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <google/protobuf/util/message_differencer.h>
#include <grpcpp/grpcpp.h>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "reprieve/scheduler/v1beta1/scheduler_service.grpc.pb.h"

namespace kube = reprieve::kube::v1beta1;
namespace pb = reprieve::scheduler::v1beta1;
namespace session_pb = reprieve::session::v1beta1;

namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kLongestBackoff = 10 * kSecond;
// An answer ends at so many bytes, far enough below the 2 MiB that a message may have.
constexpr size_t kMostBytes = 1 << 20;

// A request that is refused, thrown before it has changed anything.
struct Refusal {
  grpc::Status status;

  static Refusal Of(grpc::StatusCode code, const std::string& reason, const std::string& text,
                    const std::map<std::string, std::string>& metadata = {},
                    const std::string& field = "") {
    google::rpc::Status status;
    status.set_code(code);
    status.set_message(field.empty() ? text : field + ": " + text);
    google::rpc::ErrorInfo info;
    info.set_reason(reason);
    info.set_domain("reprieve.internal");
    info.mutable_metadata()->insert(metadata.begin(), metadata.end());
    status.add_details()->PackFrom(info);
    if (!field.empty()) {
      google::rpc::BadRequest bad;
      auto* violation = bad.add_field_violations();
      violation->set_field(field);
      violation->set_description(text);
      status.add_details()->PackFrom(bad);
    }
    return {grpc::Status(code, status.message(), status.SerializeAsString())};
  }

  static Refusal BadField(const std::string& field, const std::string& problem) {
    return Of(grpc::StatusCode::INVALID_ARGUMENT, "BAD_FIELD", problem, {}, field);
  }

  static Refusal TimeGoesBackwards(int64_t time_ns, int64_t earliest_ns) {
    return Of(grpc::StatusCode::FAILED_PRECONDITION, "TIME_GOES_BACKWARDS",
              std::to_string(time_ns) + " ns lies before the last operation at " +
                  std::to_string(earliest_ns) + " ns, or after its round",
              {{"earliest_time_ns", std::to_string(earliest_ns)}});
  }
};

// Quantities by resource name: cpu in thousandths, all else in whole units.
using Amounts = std::map<std::string, int64_t>;
using Quantities = google::protobuf::Map<std::string, std::string>;

// Returns a Kubernetes quantity such as "500m", "1.5Gi" or "129e6" times `scale`, rounded up to a
// whole number as upstream does, and at most the largest int64; nothing for any other text.
std::optional<int64_t> ParseQuantity(const std::string& text, int64_t scale) {
  static const std::map<std::string, int> kDecimal = {
      {"", 0}, {"n", -9}, {"u", -6}, {"m", -3}, {"k", 3},
      {"M", 6}, {"G", 9}, {"T", 12}, {"P", 15}, {"E", 18}};
  static const std::map<std::string, int> kBinary = {{"Ki", 10}, {"Mi", 20}, {"Gi", 30},
                                                     {"Ti", 40}, {"Pi", 50}, {"Ei", 60}};
  size_t at = 0;
  const bool is_negative = text[0] == '-';
  if (text[0] == '-' || text[0] == '+') ++at;
  __int128 value = 0;
  int exponent = 0, digits = 0;
  bool is_fraction = false, is_huge = false;
  for (; at < text.size(); ++at) {
    if (text[at] == '.' && !is_fraction) {
      is_fraction = true;
    } else if (std::isdigit(static_cast<unsigned char>(text[at]))) {
      ++digits;
      is_huge |= __builtin_mul_overflow(value, 10, &value);
      is_huge |= __builtin_add_overflow(value, text[at] - '0', &value);
      exponent -= is_fraction;
    } else {
      break;
    }
  }
  if (digits == 0) return std::nullopt;
  std::string unit = text.substr(at);
  if (auto binary = kBinary.find(unit); binary != kBinary.end()) {
    is_huge |= __builtin_mul_overflow(value, int64_t{1} << binary->second, &value);
  } else if (auto decimal = kDecimal.find(unit); decimal != kDecimal.end()) {
    exponent += decimal->second;
  } else {
    if (unit[0] != 'e' && unit[0] != 'E') return std::nullopt;
    const size_t first = 1 + (unit[1] == '-' || unit[1] == '+');
    const size_t count = unit.size() - first;
    const bool is_number = std::all_of(unit.begin() + first, unit.end(),
                                       [](unsigned char c) { return std::isdigit(c); });
    if (count < 1 || count > 3 || !is_number) return std::nullopt;
    exponent += std::atoi(unit.c_str() + 1);
  }
  is_huge |= __builtin_mul_overflow(value, scale, &value);
  for (; exponent > 0 && value != 0 && !is_huge; --exponent) {
    is_huge |= __builtin_mul_overflow(value, 10, &value);
  }
  // Rounded up once, after the last division: away from zero only where the amount is positive.
  bool has_rest = false;
  for (; exponent < 0 && value != 0; ++exponent) {
    has_rest |= value % 10 != 0;
    value /= 10;
  }
  value += has_rest && !is_negative;
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  const int64_t amount = is_huge || value > kMax ? kMax : static_cast<int64_t>(value);
  return is_negative ? -amount : amount;
}

// Returns quantities as numbers; `field` is their path in the request, for a refusal.
Amounts ParseAmounts(const Quantities& quantities, const std::string& field) {
  Amounts amounts;
  for (const auto& [name, text] : quantities) {
    const auto amount = ParseQuantity(text, name == "cpu" ? 1000 : 1);
    if (!amount) throw Refusal::BadField(field, name + ": \"" + text + "\" is not a quantity");
    amounts[name] = *amount;
  }
  return amounts;
}

void Add(Amounts& amounts, const Amounts& others, int sign = 1) {
  for (const auto& [name, amount] : others) amounts[name] += sign * amount;
}

// Takes the larger of both amounts of each resource.
void Raise(Amounts& amounts, const Amounts& others) {
  for (const auto& [name, amount] : others) {
    amounts[name] = std::max(amounts[name], amount);
  }
}

// A port of the node that a container takes: number, protocol and address, "" for every address.
using HostPort = std::tuple<int, std::string, std::string>;

bool Overlap(const HostPort& a, const HostPort& b) {
  const auto& [port_a, protocol_a, address_a] = a;
  const auto& [port_b, protocol_b, address_b] = b;
  const bool is_same_address = address_a.empty() || address_b.empty() || address_a == address_b;
  return port_a == port_b && protocol_a == protocol_b && is_same_address;
}

void ReadPorts(const kube::Container& container, std::vector<HostPort>& ports) {
  for (const auto& port : container.ports()) {
    if (port.host_port() <= 0) continue;
    ports.emplace_back(port.host_port(), port.protocol().empty() ? "TCP" : port.protocol(),
                       port.host_ip() == "0.0.0.0" ? "" : port.host_ip());
  }
}

// A pod with what it requests. Its node is the one that it is bound to, or assumed to be.
struct Pod {
  kube::Pod message;
  Amounts requests;
  std::vector<HostPort> ports;
  std::string node;

  enum Standing { kGone, kIgnored, kPending, kAssigned };

  // What the pod is for a scheduler: an ended pod holds no room, a terminating one does.
  Standing standing() const {
    const std::string& phase = message.status().phase();
    if (phase == "Succeeded" || phase == "Failed") return kGone;
    if (!node.empty()) return kAssigned;
    const std::string& scheduler = message.spec().scheduler_name();
    const bool is_ours = scheduler.empty() || scheduler == "default-scheduler";
    const bool is_gated = message.spec().scheduling_gates_size() > 0;
    return is_ours && !is_gated && !message.metadata().has_deletion_timestamp() ? kPending
                                                                                : kIgnored;
  }
};

// What a pod requests is what its containers request together, or the most while it starts: init
// containers run one after the other, and sidecars stay.
Pod ReadPod(const kube::Pod& message, const std::string& field) {
  const auto& spec = message.spec();
  Amounts requests, sidecars, starting;
  std::vector<HostPort> ports;
  for (const auto& container : spec.containers()) {
    ReadPorts(container, ports);
    Add(requests, ParseAmounts(container.resources().requests(), field));
  }
  for (const auto& container : spec.init_containers()) {
    Amounts needed = ParseAmounts(container.resources().requests(), field);
    if (container.restart_policy() == "Always") {
      ReadPorts(container, ports);
      Add(requests, needed);
      Add(sidecars, needed);
      Raise(starting, sidecars);
    } else {
      Add(needed, sidecars);
      Raise(starting, needed);
    }
  }
  Raise(requests, starting);
  // Requests of the pod as a whole stand before the sum.
  for (const auto& [name, amount] : ParseAmounts(spec.resources().requests(), field)) {
    requests[name] = amount;
  }
  Add(requests, ParseAmounts(spec.overhead(), field));
  return {message, requests, ports, spec.node_name()};
}

struct Node {
  kube::Node message;
  Amounts room, used;
  int64_t pods = 0;
  std::multiset<HostPort> ports;

  const std::string& name() const { return message.metadata().name(); }

  void Count(const Pod& pod, int sign) {
    pods += sign;
    Add(used, pod.requests, sign);
    for (const auto& port : pod.ports) {
      if (sign > 0) {
        ports.insert(port);
      } else {
        ports.erase(ports.find(port));
      }
    }
  }
};

Node ReadNode(const kube::Node& message, const std::string& field) {
  const auto& status = message.status();
  const auto& room = status.allocatable().empty() ? status.capacity() : status.allocatable();
  Node node;
  node.message = message;
  node.room = ParseAmounts(room, field);
  return node;
}

bool Tolerates(const Pod& pod, const std::string& key, const std::string& value,
               const std::string& effect) {
  for (const auto& toleration : pod.message.spec().tolerations()) {
    const bool exists = toleration.operator_() == "Exists";
    const bool is_effect = toleration.effect().empty() || toleration.effect() == effect;
    const bool is_key = toleration.key() == key || (toleration.key().empty() && exists);
    if (is_effect && is_key && (exists || toleration.value() == value)) return true;
  }
  return false;
}

// Whether a requirement holds for a value, which is null where the node has none.
bool Holds(const kube::NodeSelectorRequirement& requirement, const std::string* value) {
  const std::string& how = requirement.operator_();
  const auto& values = requirement.values();
  if (how == "Exists") return value != nullptr;
  if (how == "DoesNotExist") return value == nullptr;
  const bool is_listed =
      value != nullptr && std::find(values.begin(), values.end(), *value) != values.end();
  if (how == "In") return is_listed;
  if (how == "NotIn") return !is_listed;
  if ((how != "Gt" && how != "Lt") || value == nullptr || values.size() != 1) return false;
  char *end = nullptr, *end_of_bound = nullptr;
  const int64_t number = std::strtoll(value->c_str(), &end, 10);
  const int64_t bound = std::strtoll(values[0].c_str(), &end_of_bound, 10);
  if (value->empty() || *end != '\0' || values[0].empty() || *end_of_bound != '\0') return false;
  return how == "Gt" ? number > bound : number < bound;
}

// Whether the pod's nodeSelector and required node affinity select the node: every requirement of
// one term at least. A term without requirements selects no node.
bool Selects(const Pod& pod, const Node& node) {
  const auto& labels = node.message.metadata().labels();
  const auto& spec = pod.message.spec();
  for (const auto& [key, value] : spec.node_selector()) {
    const auto label = labels.find(key);
    if (label == labels.end() || label->second != value) return false;
  }
  const auto& affinity = spec.affinity().node_affinity();
  if (!affinity.has_required_during_scheduling_ignored_during_execution()) return true;
  for (const auto& term :
       affinity.required_during_scheduling_ignored_during_execution().node_selector_terms()) {
    bool holds = term.match_expressions_size() + term.match_fields_size() > 0;
    for (const auto& requirement : term.match_expressions()) {
      const auto label = labels.find(requirement.key());
      holds &= Holds(requirement, label == labels.end() ? nullptr : &label->second);
    }
    for (const auto& requirement : term.match_fields()) {
      holds &= Holds(requirement, requirement.key() == "metadata.name" ? &node.name() : nullptr);
    }
    if (holds) return true;
  }
  return false;
}

// A plugin that refuses a node, by upstream's name, and its reasons.
struct Verdict {
  std::string plugin;
  std::vector<std::string> reasons;
};

// Returns the first of upstream's plugins that refuses the node; nothing where the pod fits.
std::optional<Verdict> Refuses(const Node& node, const Pod& pod) {
  if (node.message.spec().unschedulable() &&
      !Tolerates(pod, "node.kubernetes.io/unschedulable", "", "NoSchedule")) {
    return Verdict{"NodeUnschedulable", {"node(s) were unschedulable"}};
  }
  for (const auto& taint : node.message.spec().taints()) {
    const bool is_soft = taint.effect() == "PreferNoSchedule";
    if (!is_soft && !Tolerates(pod, taint.key(), taint.value(), taint.effect())) {
      return Verdict{"TaintToleration", {"node(s) had untolerated taint {" + taint.key() + ": " +
                                         taint.value() + "}"}};
    }
  }
  if (!Selects(pod, node)) {
    return Verdict{"NodeAffinity", {"node(s) didn't match Pod's node affinity/selector"}};
  }
  for (const auto& port : pod.ports) {
    if (std::any_of(node.ports.begin(), node.ports.end(),
                    [&](const HostPort& taken) { return Overlap(port, taken); })) {
      return Verdict{"NodePorts",
                     {"node(s) didn't have free ports for the requested pod ports"}};
    }
  }
  Verdict fit{"NodeResourcesFit", {}};
  const auto amount_of = [](const Amounts& amounts, const std::string& name) {
    const auto amount = amounts.find(name);
    return amount == amounts.end() ? int64_t{0} : amount->second;
  };
  if (node.pods + 1 > amount_of(node.room, "pods")) fit.reasons.push_back("Too many pods");
  for (const auto& [name, amount] : pod.requests) {
    if (amount > 0 && amount > amount_of(node.room, name) - amount_of(node.used, name)) {
      fit.reasons.push_back("Insufficient " + name);
    }
  }
  return fit.reasons.empty() ? std::nullopt : std::optional(fit);
}

// Reports in kube-scheduler's words why a pod fits nowhere.
pb::Unschedulable Unschedulable(size_t nodes, const std::map<std::string, int>& counts,
                                const std::set<std::string>& plugins) {
  pb::Unschedulable verdict;
  if (nodes == 0) {
    verdict.set_message("no nodes available to schedule pods");
    return verdict;
  }
  std::set<std::string> texts;
  std::vector<std::pair<int, std::string>> by_count;
  for (const auto& [reason, count] : counts) {
    texts.insert(std::to_string(count) + " " + reason);
    by_count.emplace_back(-count, reason);
  }
  std::string message = "0/" + std::to_string(nodes) + " nodes are available: ";
  for (const auto& text : texts) message += (text == *texts.begin() ? "" : ", ") + text;
  verdict.set_message(message + ".");
  std::sort(by_count.begin(), by_count.end());
  for (const auto& [count, reason] : by_count) {
    auto* reasons = verdict.add_reasons();
    reasons->set_reason(reason);
    reasons->set_nodes(-count);
  }
  for (const auto& plugin : plugins) verdict.add_unschedulable_plugins(plugin);
  return verdict;
}

// Nodes in the order in which they came, and pods by uid.
class Cluster {
 public:
  Pod* pod(const std::string& uid) {
    const auto pod = pods_.find(uid);
    return pod == pods_.end() ? nullptr : &pod->second;
  }

  void Put(Node node) {
    for (const auto& [uid, pod] : pods_) {
      if (pod.node == node.name() && pod.standing() == Pod::kAssigned) node.Count(pod, 1);
    }
    for (auto& present : nodes_) {
      if (present.name() == node.name()) {
        present = std::move(node);
        return;
      }
    }
    nodes_.push_back(std::move(node));
  }

  void RemoveNode(const std::string& name) {
    nodes_.erase(std::remove_if(nodes_.begin(), nodes_.end(),
                                [&](const Node& node) { return node.name() == name; }),
                 nodes_.end());
  }

  // Puts a pod in the place of the one with this uid; nothing removes it.
  void Put(const std::string& uid, std::optional<Pod> pod) {
    if (const auto former = pods_.find(uid); former != pods_.end()) {
      Count(former->second, -1);
      pods_.erase(former);
    }
    if (pod) Count(pods_.emplace(uid, std::move(*pod)).first->second, 1);
  }

  // Sets the outcome's decision about a pod: the first node that it fits on, or why none does.
  void FirstFit(const Pod& pod, pb::Outcome* outcome) const {
    std::map<std::string, int> counts;
    std::set<std::string> plugins;
    for (size_t index = 0; index < nodes_.size(); ++index) {
      const auto verdict = Refuses(nodes_[index], pod);
      if (!verdict) {
        auto* bind = outcome->mutable_bind();
        bind->set_node_name(nodes_[index].name());
        bind->set_evaluated_nodes(static_cast<int>(index) + 1);
        bind->set_feasible_nodes(1);
        bind->set_tied_nodes(1);
        return;
      }
      plugins.insert(verdict->plugin);
      for (const auto& reason : verdict->reasons) ++counts[reason];
    }
    *outcome->mutable_unschedulable() = Unschedulable(nodes_.size(), counts, plugins);
  }

 private:
  void Count(const Pod& pod, int sign) {
    if (pod.standing() != Pod::kAssigned) return;
    for (auto& node : nodes_) {
      if (node.name() == pod.node) node.Count(pod, sign);
    }
  }

  std::vector<Node> nodes_;
  std::map<std::string, Pod> pods_;
};

// An event that was read: at most one of node, pod, patch and remove; none where it does not matter.
struct Change {
  int64_t time_ns = 0;
  std::optional<Node> node;
  std::optional<Pod> pod;
  const pb::PodPatch* patch = nullptr;
  const kube::ObjectReference* remove = nullptr;
};

// The pending pods of one session: their order, their backoff, and when they are tried again.
class Scheduler {
 public:
  int64_t now_ns() const { return now_ns_; }

  // Carries out a round whose events were read: nothing can fail from here on.
  pb::RoundOutcomes Run(const pb::Round& round, std::vector<Change> changes) {
    now_ns_ = round.time_ns();
    for (const auto& answer : round.answers()) Answered(answer);
    for (auto& change : changes) Take(change);
    pb::RoundOutcomes outcomes;
    if (round.events_only()) return outcomes;
    size_t bytes = 0;
    for (const std::string& uid : Due()) {
      const bool is_full = round.has_max_pods() && outcomes.outcomes_size() >=
                                                       static_cast<int64_t>(round.max_pods());
      if (is_full || bytes > kMostBytes) {
        outcomes.set_more(true);
        break;
      }
      auto* outcome = outcomes.add_outcomes();
      Attempt(uid, outcome);
      bytes += outcome->ByteSizeLong();
    }
    for (const auto& [uid, entry] : waiting_) {
      if (entry.is_ready && entry.not_before_ns > now_ns_ &&
          (!outcomes.has_next_wakeup_time_ns() || entry.not_before_ns < outcomes.next_wakeup_time_ns())) {
        outcomes.set_next_wakeup_time_ns(entry.not_before_ns);
      }
    }
    // A status alone changes no decision here, and nothing does while no pod waits.
    outcomes.set_may_wait(waiting_.empty() ? pb::MAY_WAIT_ALL : pb::MAY_WAIT_STATUS);
    return outcomes;
  }

 private:
  // A pending pod. It is ready when it is to be tried, from not_before_ns on.
  struct Entry {
    int64_t order = 0;
    int attempts = 0;
    int64_t first_ns = 0, queued_ns = 0, not_before_ns = 0;
    bool is_ready = true;
  };

  // Notes what became of a binding: a pod whose binding was refused is tried again.
  void Answered(const pb::Answer& answer) {
    const std::string& uid = answer.pop().uid();
    const auto assumed = assumed_.find(uid);
    if (assumed == assumed_.end()) return;
    Entry entry = assumed->second;
    assumed_.erase(assumed);
    const Pod* pod = cluster_.pod(uid);
    if (pod == nullptr || !answer.has_refused() ||
        answer.refused() != pb::REFUSAL_STAGE_BIND) {
      return;
    }
    Pod freed = *pod;
    freed.node.clear();
    Put(now_ns_, uid, std::move(freed));
    if (const auto waits = waiting_.find(uid); waits != waiting_.end()) { // else it is being deleted
      entry.is_ready = true;
      waits->second = entry;
    }
  }

  void Take(Change& change) {
    if (change.node) {
      cluster_.Put(std::move(*change.node));
      Retry();
    } else if (change.pod) {
      const std::string uid = change.pod->message.metadata().uid();
      const Pod* former = cluster_.pod(uid);
      // What is assumed holds until it is refused.
      if (former != nullptr && change.pod->node.empty()) change.pod->node = former->node;
      Put(change.time_ns, uid, std::move(change.pod));
      if (const auto waits = waiting_.find(uid); waits != waiting_.end()) {
        waits->second.is_ready = true;  // it may request less now, or tolerate more
      }
    } else if (change.patch != nullptr) {
      const std::string& uid = change.patch->pod().uid();
      if (const Pod* former = cluster_.pod(uid)) {
        Put(change.time_ns, uid, Patched(*former, *change.patch));
      }
    } else if (change.remove != nullptr && change.remove->kind() == "Pod") {
      Put(change.time_ns, change.remove->uid(), std::nullopt);
    } else if (change.remove != nullptr && change.remove->kind() == "Node") {
      cluster_.RemoveNode(change.remove->name());
    }
  }

  static Pod Patched(Pod pod, const pb::PodPatch& patch) {
    // A patch may confirm a binding without its node, and none takes one back.
    if (!patch.node_name().empty()) pod.node = patch.node_name();
    if (patch.has_status()) *pod.message.mutable_status() = patch.status();
    if (patch.has_deletion_time_ns()) {
      auto* time = pod.message.mutable_metadata()->mutable_deletion_timestamp();
      time->set_seconds(patch.deletion_time_ns() / kSecond);
      time->set_nanos(static_cast<int>(patch.deletion_time_ns() % kSecond));
    }
    return pod;
  }

  void Put(int64_t time_ns, const std::string& uid, std::optional<Pod> pod) {
    const Pod* former = cluster_.pod(uid);
    const auto was = former != nullptr ? former->standing() : Pod::kGone;
    const auto is = pod ? pod->standing() : Pod::kGone;
    cluster_.Put(uid, std::move(pod));
    if (is != Pod::kPending) {
      waiting_.erase(uid);
    } else if (was != Pod::kPending) {
      waiting_[uid] = Entry{++arrived_, 0, time_ns, time_ns, time_ns, true};
    }
    if (was == Pod::kAssigned && is != Pod::kAssigned) Retry();
  }

  // Lets every pod be tried again after its backoff, for there may be room now.
  void Retry() {
    for (auto& [uid, entry] : waiting_) entry.is_ready = true;
  }

  // Returns the pods to be tried now: those of higher priority first, then those that wait longer.
  std::vector<std::string> Due() {
    std::map<std::tuple<int64_t, int64_t, int64_t>, std::string> due;
    for (const auto& [uid, entry] : waiting_) {
      if (!entry.is_ready || entry.not_before_ns > now_ns_) continue;
      const int64_t priority = cluster_.pod(uid)->message.spec().priority();
      due[{-priority, entry.queued_ns, entry.order}] = uid;
    }
    std::vector<std::string> uids;
    for (const auto& [key, uid] : due) uids.push_back(uid);
    return uids;
  }

  void Attempt(const std::string& uid, pb::Outcome* outcome) {
    Entry& entry = waiting_.at(uid);
    outcome->mutable_pop()->set_uid(uid);
    outcome->mutable_pop()->set_cycle(++cycle_);
    outcome->set_time_ns(now_ns_);
    outcome->set_attempts(++entry.attempts);
    outcome->set_first_enqueued_time_ns(entry.first_ns);
    outcome->set_queued_time_ns(entry.queued_ns);
    entry.is_ready = false;
    entry.queued_ns = now_ns_;
    // A pod is left alone for 1 s after its first attempt, then for 2, 4, 8 and 10 s.
    entry.not_before_ns =
        now_ns_ + (entry.attempts > 4 ? kLongestBackoff : kSecond << (entry.attempts - 1));
    Pod pod = *cluster_.pod(uid);
    cluster_.FirstFit(pod, outcome);
    if (!outcome->has_bind()) return;
    // The room is taken from now on; the world has yet to answer.
    pod.node = outcome->bind().node_name();
    assumed_[uid] = entry;
    Put(now_ns_, uid, std::move(pod));
  }

  Cluster cluster_;
  std::map<std::string, Entry> waiting_;
  std::map<std::string, Entry> assumed_;  // bindings that were sent and are not answered
  int64_t arrived_ = 0, cycle_ = 0, now_ns_ = 0;
};

// Reads an event; `field` is its path in the request, for a refusal.
Change ReadEvent(const pb::Event& event, const std::string& field) {
  Change change;
  change.time_ns = event.time_ns();
  switch (event.event_case()) {
    case pb::Event::kAdd:
    case pb::Event::kUpdate: {
      const bool is_new = event.event_case() == pb::Event::kAdd;
      const auto& object = is_new ? event.add() : event.update();
      const std::string path = field + (is_new ? ".add" : ".update");
      if (object.object_case() == kube::KubernetesObject::OBJECT_NOT_SET) {
        throw Refusal::BadField(path + ".object", "is required");
      }
      if (object.has_pod()) {
        if (object.pod().metadata().uid().empty()) {
          throw Refusal::BadField(path + ".pod.metadata.uid", "is required");
        }
        change.pod = ReadPod(object.pod(), path + ".pod");
      } else if (object.has_node()) {
        if (object.node().metadata().name().empty()) {
          throw Refusal::BadField(path + ".node.metadata.name", "is required");
        }
        change.node = ReadNode(object.node(), path + ".node");
      } // other kinds do not matter here
      break;
    }
    case pb::Event::kPatch:
      if (event.patch().pod().uid().empty()) {
        throw Refusal::BadField(field + ".patch.pod.uid", "is required");
      }
      change.patch = &event.patch();
      break;
    case pb::Event::kRemove:
      if (event.remove().kind().empty()) {
        throw Refusal::BadField(field + ".remove.kind", "is required");
      }
      change.remove = &event.remove();
      break;
    case pb::Event::kTick:  // what is due is looked at in every round
      break;
    default:
      throw Refusal::BadField(field + ".event", "is required");
  }
  return change;
}

// Checks a request and returns what its events change.
std::vector<Change> ReadRound(const pb::RunRoundRequest& request, int64_t earliest_ns) {
  const auto& round = request.round();
  if (!request.has_round()) throw Refusal::BadField("round", "is required");
  if (request.window_size() > 0) throw Refusal::BadField("window", "is not served");
  if (round.time_ns() < 0) throw Refusal::BadField("round.time_ns", "lies before the Unix epoch");
  if (round.time_ns() < earliest_ns) throw Refusal::TimeGoesBackwards(round.time_ns(), earliest_ns);
  for (int index = 0; index < round.answers_size(); ++index) {
    if (round.answers(index).pop().uid().empty()) {
      throw Refusal::BadField("round.answers[" + std::to_string(index) + "].pop.uid",
                              "is required");
    }
  }
  std::vector<Change> changes;
  int64_t last_ns = 0;
  for (int index = 0; index < round.events_size(); ++index) {
    const auto& event = round.events(index);
    if (event.time_ns() < last_ns || event.time_ns() > round.time_ns()) {
      throw Refusal::TimeGoesBackwards(event.time_ns(), last_ns);
    }
    last_ns = event.time_ns();
    changes.push_back(ReadEvent(event, "round.events[" + std::to_string(index) + "]"));
  }
  return changes;
}

// A scheduler with the last request that counted, and its answer.
class Session {
 public:
  // Answers the next request of the session, or the last one again.
  pb::RunRoundResponse Run(pb::RunRoundRequest request) {
    std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (!lock) {
      throw Refusal::Of(grpc::StatusCode::ABORTED, "BUSY", "another request is being carried out");
    }
    auto* stamp = request.mutable_stamp();
    stamp->clear_traceparent();  // a repeated request may differ in these two
    stamp->clear_acknowledged();
    if (!stamp->has_sequence()) throw Refusal::BadField("stamp.sequence", "is required");
    const uint64_t next = sequence_ + 1;
    if (stamp->sequence() != next) {
      const std::string text = std::to_string(next) + " comes next";
      const std::map<std::string, std::string> metadata = {
          {"expected_sequence", std::to_string(next)}};
      if (stamp->sequence() != sequence_ || sequence_ == 0) {
        throw Refusal::Of(grpc::StatusCode::ABORTED, "SEQUENCE_MISMATCH", text, metadata);
      }
      if (!google::protobuf::util::MessageDifferencer::Equals(request, request_)) {
        throw Refusal::Of(grpc::StatusCode::ABORTED, "SEQUENCE_REUSED", text, metadata);
      }
      return response_;
    }
    // The changes point into the request.
    std::vector<Change> changes = ReadRound(request, scheduler_.now_ns());
    pb::RunRoundResponse response;
    *response.add_rounds() = scheduler_.Run(request.round(), std::move(changes));
    response.set_sequence(next);
    sequence_ = next;
    request_ = std::move(request);
    response_ = response;
    return response;
  }

 private:
  std::mutex mutex_;
  uint64_t sequence_ = 0;
  pb::RunRoundRequest request_;
  pb::RunRoundResponse response_;
  Scheduler scheduler_;
};

// RPCs without a method here answer UNIMPLEMENTED.
class Service final : public pb::SchedulerService::Service {
  grpc::Status CreateSession(grpc::ServerContext*, const pb::CreateSessionRequest*,
                             pb::Session* response) override {
    std::random_device random;
    std::ostringstream name;
    for (int word = 0; word < 4; ++word) name << std::hex << random() << '-';
    response->set_session_id(name.str());
    // config stays empty: it has the settings that are followed, and first fit has none.
    response->set_implementation("first-fit-cpp");
    response->set_version("0.1.0");
    const std::lock_guard<std::mutex> lock(mutex_);
    sessions_[name.str()] = std::make_shared<Session>();
    return grpc::Status::OK;
  }

  grpc::Status DeleteSession(grpc::ServerContext*,
                             const session_pb::DeleteSessionRequest* request,
                             google::protobuf::Empty*) override {
    if (request->session_id().empty()) return Refusal::BadField("session_id", "is required").status;
    const std::lock_guard<std::mutex> lock(mutex_);
    sessions_.erase(request->session_id());
    return grpc::Status::OK;
  }

  grpc::Status RunRound(grpc::ServerContext*, const pb::RunRoundRequest* request,
                        pb::RunRoundResponse* response) override {
    try {
      const std::string& name = request->stamp().session_id();
      if (name.empty()) throw Refusal::BadField("stamp.session_id", "is required");
      *response = Find(name)->Run(*request);
      return grpc::Status::OK;
    } catch (const Refusal& refusal) {
      return refusal.status;
    }
  }

  grpc::Status StreamingRunRound(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<pb::RunRoundResponse, pb::RunRoundRequest>* stream) override {
    pb::RunRoundRequest request;
    while (stream->Read(&request)) {
      pb::RunRoundResponse response;
      const grpc::Status status = RunRound(context, &request, &response);
      if (!status.ok()) return status;
      if (!stream->Write(response)) break;
    }
    return grpc::Status::OK;
  }

  std::shared_ptr<Session> Find(const std::string& name) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto session = sessions_.find(name);
    if (session == sessions_.end()) {
      throw Refusal::Of(grpc::StatusCode::NOT_FOUND, "SESSION_EXPIRED",
                        "there is no such session", {{"reason", "unknown"}});
    }
    return session->second;
  }

  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Session>> sessions_;
};

}  // namespace

int main(int argc, char** argv) {
  std::string listen = "127.0.0.1:50065";
  if (argc == 3 && std::string(argv[1]) == "--listen") {
    listen = argv[2];
  } else if (argc != 1) {
    std::cerr << "usage: first-fit-cpp [--listen HOST:PORT]\n";
    return 2;
  }
  // Every thread that gRPC starts leaves these signals to the one that waits for them.
  sigset_t ended;
  sigemptyset(&ended);
  sigaddset(&ended, SIGTERM);
  sigaddset(&ended, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ended, nullptr);
  Service service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    std::cerr << "first-fit-cpp cannot listen on " << listen << "\n";
    return 1;
  }
  std::cout << "first-fit-cpp listening on " << listen.substr(0, listen.rfind(':')) << ":" << port
            << std::endl;
  std::thread([&] {
    int signal = 0;
    sigwait(&ended, &signal);
    server->Shutdown(std::chrono::system_clock::now());
  }).detach();
  server->Wait();
}
