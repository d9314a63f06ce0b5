"""The rules of a queue that the small one can break, each by its number in docs/queue.md."""

from __future__ import annotations

from enum import Enum


class Breach(Enum):
    """A broken rule: its number, and what the queue does in place of what it says."""

    IGNORES_PRIORITY = "1", "pops in the order of arrival"
    IGNORES_AGE = "1", "pops the youngest pod of a priority"
    IGNORES_SORT_KEY = "1", "does not read sort keys"
    ORDERS_KEYS_BACKWARDS = "1", "pops the largest sort key first"
    HEADS_BY_NAME = "2", "shows heads in the order of their names"
    HEADS_ARE_POPPED = "2", "pops what it shows"
    SHOWS_ALL_HEADS = "2", "shows more heads than were requested"
    HEADS_HAVE_ONE_CYCLE = "2", "shows every head with the next cycle"
    COUNTS_NO_ATTEMPTS = "5", "counts no attempts"
    CYCLES_REPEAT = "3", "begins cycles again with each batch"
    POPS_AFTER_CLOSE = "3", "reports an empty queue after it was closed"
    KEEPS_OLD_PRIORITY = "4", "orders updated pods by what they were"
    KEEPS_DELETED = "4", "pops pods that were deleted while they waited"
    KEEPS_DELETED_REFUSED = "5", "pops pods that were deleted after they were refused"
    REFUSES_UNKNOWN = "4", "refuses the deletion of unknown pods"
    TRIES_AGAIN_AT_ONCE = "5", "makes refused pods active at once"
    MOVED_BY_ANY_EVENT = "6", "moves pods by events of other plugins"
    MOVED_BY_NO_EVENT = "6", "moves pods by no event"
    MATCHES_EXACT_LABELS = "6", "does not read broader registrations"
    UNLISTED_HEAR_NOTHING = "6", "registers plugins that are not listed for no event"
    IGNORES_CONDITIONS = "6", "does not read the conditions of registrations"
    IGNORES_BACKOFF = "7", "makes moved pods active at once"
    BACKOFF_IS_CONSTANT = "7", "does not double the backoff"
    BACKOFF_HAS_NO_LIMIT = "7", "doubles the backoff for ever"
    NEVER_WAKES = "7", "has no next wakeup"
    MOVES_PROLONG_BACKOFF = "7", "counts backoffs from moves"
    MOVED_BY_THE_FLUSH = "7", "takes the end of a backoff for the time of the event before it"
    NEVER_POPS_BACKOFF = "8", "waits for backoffs where no pod is active"
    FORGETS_EVENTS = "9", "forgets events during an attempt"
    LEAVES_LEFTOVERS = "10", "leaves pods unschedulable for ever"
    MOVES_LEFTOVERS_EARLY = "10", "moves every unschedulable pod with a leftover flush"
    ACTIVATED_PODS_BACK_OFF = "11", "makes activated pods back off"
    IGNORES_MOVE_PRIORITY = "12", "moves pods above priority_at_most"
    IGNORES_ALL_BUT = "12", "moves the pod of all_but"
    ERRORS_WAIT = "13", "lets pods wait for events after errors"
    PENDING_BACKS_OFF = "13", "makes pods back off that a plugin held as Pending"
    IGNORES_GATES = "14", "pops gated pods"
    KEEPS_GATES = "14", "keeps gates that were removed"
    SETTING_GATES_MOVES = "14", "makes pods active as their gates are removed"
    ASSIGNED_PODS_MOVE_ALL = "15", "moves every pod when a pod is assigned"
    ASSIGNED_PODS_MOVE_NONE = "15", "moves no pod when a pod is assigned"
    COMMITS_ANY_POD = "16", "commits pods that are not next"
    COMMITS_ANY_CYCLE = "16", "commits the next pod in any cycle"
    GOES_ON = "16", "applies what follows a pod that was not next"
    TAKES_UNKNOWN_POPS = "17", "returns pods that are not in flight as applied"
    KEEPS_FLYING = "17", "takes a pod back twice"
    COMMITS_BY_FIRST_FAILURE = "18", "refuses all pods of a list with its first failure"
    COMMITS_ANY_LIST = "18", "refuses all pods of a list that are waiting"
    COUNTS_NO_PODS = "18", "does not count the pods before the one that was not next"
    LOSES_NOMINATIONS = "19", "shows heads without nominations"
    KEEPS_NOMINATIONS = "19", "keeps nominations that ended"
    NOMINATIONS_OUTLIVE_PODS = "19", "keeps nominations of deleted pods"
    STATE_HAS_NO_FLIGHTS = "20", "does not show pods in flight"
    STATE_HAS_NO_NOMINATIONS = "20", "does not show nominations"
    WATCH_COUNTS_ALL = "20", "counts all pods as active for watchers"
    HEADS_IN_ORDER_OF_ARRIVAL = "21", "does not commit the heads that callers form"
    FORESEES_NO_REFUSAL = "21", "foresees no wakeup after a refusal"
    PASSES_ALWAYS = "22", "lets pods pass while a pod is active"
    PASSING_COUNTS_ONE = "22", "counts one cycle for all pods that pass"
    KEEPS_OWNERS = "23", "keeps the pods of an owner that is released"
    RELEASES_ALL = "23", "returns the pods of all owners"
    LEASES_NEVER_END = "23", "keeps pods whose lease has ended"
    IGNORES_RENEWALS = "23", "returns pods whose lease was renewed"

    @property
    def rule(self) -> str:
        """Return the number of the rule."""
        return self.value[0]

    @property
    def does(self) -> str:
        """Return what the queue does."""
        return self.value[1]

    def __str__(self) -> str:
        return f"{self.rule} {self.does}"
