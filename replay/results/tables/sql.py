"""The SQL that builds each table from the decision log and the drafts.

The queries use these views: `log`, the decision log with NULL for absent fields, and draft_NAME,
the draft of table NAME.
"""

from __future__ import annotations

from collections.abc import Mapping

from replay.results.schema import TABLES

_REFERENCE = "STRUCT(kind VARCHAR, namespace VARCHAR, name VARCHAR, uid VARCHAR)"
_INVALID = (
    "STRUCT(nodeName VARCHAR, violations STRUCT(cause VARCHAR, message VARCHAR)[], foundBy VARCHAR)"
)
_REQUEUE = "STRUCT(event VARCHAR, timeNs BIGINT, activeTimeNs BIGINT)"
_OBSERVED = {
    "scheduled": (
        "STRUCT(nodeName VARCHAR, attempts INTEGER, waitedNs BIGINT, feasibleNodes INTEGER, "
        f"tiedNodes INTEGER, score BIGINT, tookNs BIGINT, requeue {_REQUEUE})"
    ),
    "nominated": (
        "STRUCT(nodeName VARCHAR, decidedBy VARCHAR, candidates INTEGER, "
        f"victims {_REFERENCE}[], budgetViolations INTEGER, expected BOOLEAN)"
    ),
    "preempted": f'STRUCT("by" {_REFERENCE}, nodeName VARCHAR, violatesBudget BOOLEAN)',
    "evicted": ("STRUCT(nodeName VARCHAR, signal VARCHAR, message VARCHAR, gracePeriodS BIGINT)"),
    "failedScheduling": (
        f"STRUCT(message VARCHAR, attempts INTEGER, reason VARCHAR, requeue {_REQUEUE})"
    ),
    "started": "STRUCT(nodeName VARCHAR)",
    "finished": "STRUCT(phase VARCHAR, reason VARCHAR)",
    "removed": "STRUCT(cause VARCHAR)",
    "conditionChanged": 'STRUCT("type" VARCHAR, status VARCHAR)',
    "oomKilled": (
        "STRUCT(nodeName VARCHAR, container VARCHAR, limitOf VARCHAR, limitBytes BIGINT, "
        "usageBytes BIGINT, oomScoreAdj INTEGER, containerSurvives BOOLEAN)"
    ),
    "invalidPlacement": _INVALID,
    "invalidPreemption": _INVALID,
    "rejected": "STRUCT(nodeName VARCHAR, reason VARCHAR, message VARCHAR)",
    "made": f"STRUCT(owner {_REFERENCE}, ordinal BIGINT)",
    "refused": f"STRUCT(owner {_REFERENCE}, message VARCHAR, pods INTEGER)",
    "nodeDrain": "STRUCT(step VARCHAR, tookNs BIGINT, evicted INTEGER, message VARCHAR)",
    "scaledUp": (
        f"STRUCT(fromSize INTEGER, toSize INTEGER, nodeNames VARCHAR[], pods {_REFERENCE}[])"
    ),
    "nodeProvisioned": ('STRUCT("group" VARCHAR, elapsedDurationNs BIGINT, message VARCHAR)'),
    "nodeRemoval": (
        f'STRUCT(step VARCHAR, "group" VARCHAR, unneededSinceTimeNs BIGINT, pods {_REFERENCE}[], '
        "message VARCHAR)"
    ),
    "noScaleUp": 'STRUCT(groups STRUCT("group" VARCHAR, reasons VARCHAR[])[])',
}
_FROM_THE_LOG = frozenset(
    {
        *("scheduled_ns", "waited_ns", "attempts", "last_message", "nominations"),
        *("ended_ns", "removed_ns", "ending", "preempted_ns", "preempted_by"),
        *("evicted_ns", "evicted_signal"),
    }
)
"""The columns of `pods` that are derived from the decision log."""
LOG_COLUMNS: Mapping[str, str] = {
    "atNs": "BIGINT",
    "sequence": "BIGINT",
    "refused": "VARCHAR",
    "refusalCause": "VARCHAR",
    "observed": (
        f"STRUCT(object {_REFERENCE}, "
        + ", ".join(f'"{name}" {type_}' for name, type_ in _OBSERVED.items())
        + ")"
    ),
}
"""The SQL types of the decision log's fields (reprieve.trace.v1beta1.Decision as JSON)."""

DRAFT_PODS: Mapping[str, str] = {
    **{
        column.name: column.type
        for column in TABLES["pods"].columns
        if column.name not in _FROM_THE_LOG
    },
    "phase": "VARCHAR",
}
"""Columns of the draft of `pods`; `phase` is set only for a pod created in a terminal phase."""

_KIND = (
    "CASE " + " ".join(f"WHEN o.{name} IS NOT NULL THEN '{name}'" for name in _OBSERVED) + " END"
)
_WHO = "o.object.namespace AS namespace, o.object.name AS name, o.object.uid AS uid"

LOG = f"""
SELECT sequence, coalesce(atNs, 0) AS at_ns, refused,
    refusalCause AS refusal_cause,
    {_KIND} AS kind, o.object.kind AS object_kind, {_WHO}, o
FROM (SELECT * RENAME (observed AS o) FROM {{log_file}})
"""  # noqa: S608 - made of this module's own constants

_NOMINATED = """
SELECT attempt.sequence, nomination.o.nominated AS n
FROM (
    FROM log WHERE kind = 'nominated' AND o.nominated.nodeName IS NOT NULL AND refused IS NULL
        AND o.nominated.expected IS NULL
) AS nomination
ASOF JOIN (FROM log WHERE kind = 'failedScheduling') AS attempt
    ON nomination.uid = attempt.uid AND nomination.sequence > attempt.sequence
"""
_OWNER = "{0}.owner_kind || ' ' || {0}.namespace || '/' || {0}.owner_name"
# The kubelet prints both quantities, with binary or decimal suffixes or without.
_AMOUNT = """
round(try_cast(regexp_extract({0}, '^([0-9.]+)', 1) AS DOUBLE) * CASE
    regexp_extract({0}, '^[0-9.]+([A-Za-z]*)$', 1)
    WHEN 'Ki' THEN 1024.0 WHEN 'Mi' THEN 1024.0**2 WHEN 'Gi' THEN 1024.0**3
    WHEN 'Ti' THEN 1024.0**4 WHEN 'Pi' THEN 1024.0**5
    WHEN 'k' THEN 1e3 WHEN 'M' THEN 1e6 WHEN 'G' THEN 1e9 WHEN 'T' THEN 1e12 WHEN 'P' THEN 1e15
    WHEN 'm' THEN 1e-3 ELSE 1 END)
"""

_PODS = """
WITH life AS (
    SELECT uid,
        min(at_ns) FILTER (bound) AS scheduled_ns,
        any_value(o.scheduled.nodeName) FILTER (bound) AS node_name,
        any_value(coalesce(o.scheduled.waitedNs, 0)) FILTER (bound) AS waited_ns,
        count(*) FILTER (kind IN ('scheduled', 'failedScheduling')) AS attempts,
        arg_max(o.failedScheduling.message, sequence) FILTER (kind = 'failedScheduling')
            AS last_message,
        count(*) FILTER (kind = 'nominated' AND o.nominated.nodeName IS NOT NULL
            AND o.nominated.expected IS NULL) AS nominations,
        min(at_ns) FILTER (kind = 'started') AS started_ns,
        min(at_ns) FILTER (kind = 'finished') AS finished_ns,
        any_value(o.finished.phase) FILTER (kind = 'finished') AS phase,
        max(at_ns) FILTER (kind = 'removed') AS removed_ns,
        any_value(o.removed.cause) FILTER (kind = 'removed') AS cause,
        min(at_ns) FILTER (kind = 'preempted') AS preempted_ns,
        any_value(o.preempted."by".namespace || '/' || o.preempted."by".name)
            FILTER (kind = 'preempted') AS preempted_by,
        min(at_ns) FILTER (kind = 'evicted') AS evicted_ns,
        any_value(o.evicted.signal) FILTER (kind = 'evicted') AS evicted_signal
    FROM (
        SELECT *, kind = 'scheduled' AND refused IS NULL AS bound FROM log
        WHERE refused IS NULL OR kind IN ('scheduled', 'failedScheduling')
    )
    WHERE object_kind = 'Pod' GROUP BY uid
)
SELECT pod.* EXCLUDE (node_name, started_ns, phase),
    life.scheduled_ns,
    coalesce(life.node_name, pod.node_name) AS node_name,
    life.waited_ns,
    coalesce(life.attempts, 0) AS attempts,
    life.last_message,
    coalesce(life.nominations, 0) AS nominations,
    coalesce(life.started_ns, pod.started_ns) AS started_ns,
    CASE WHEN pod.phase IS NOT NULL THEN pod.created_ns
        ELSE least(life.finished_ns, life.removed_ns) END AS ended_ns,
    life.removed_ns,
    CASE
        WHEN life.evicted_ns <= coalesce(life.preempted_ns, life.evicted_ns) THEN 'Evicted'
        WHEN life.preempted_ns IS NOT NULL THEN 'Preempted'
        WHEN coalesce(life.phase, pod.phase) IS NOT NULL THEN coalesce(life.phase, pod.phase)
        WHEN life.cause = 'node-lost' THEN 'NodeLost'
        WHEN life.removed_ns IS NOT NULL THEN 'Deleted'
        WHEN coalesce(life.started_ns, pod.started_ns) IS NOT NULL THEN 'Running'
        ELSE 'Pending' END AS ending,
    life.preempted_ns, life.preempted_by, life.evicted_ns, life.evicted_signal
FROM draft_pods AS pod LEFT JOIN life USING (uid)
"""

_DECISIONS = """
SELECT *,
    coalesce(o.scheduled.nodeName, o.nominated.nodeName, o.preempted.nodeName, o.evicted.nodeName,
        o.oomKilled.nodeName, o.started.nodeName, o.invalidPlacement.nodeName,
        o.invalidPreemption.nodeName, o.rejected.nodeName,
        CASE WHEN object_kind = 'Node' THEN name END
    ) AS node_name,
    CASE kind
        WHEN 'failedScheduling' THEN o.failedScheduling.message
        WHEN 'nominated' THEN o.nominated.decidedBy
        WHEN 'preempted' THEN 'by ' || o.preempted."by".namespace || '/' || o.preempted."by".name
        WHEN 'evicted' THEN o.evicted.message
        WHEN 'oomKilled' THEN concat(
            'container ', o.oomKilled.container, ' at the limit of ', o.oomKilled.limitOf
        )
        WHEN 'finished' THEN concat_ws(': ', o.finished.phase, o.finished.reason)
        WHEN 'removed' THEN o.removed.cause
        WHEN 'conditionChanged' THEN o.conditionChanged."type" || '=' || o.conditionChanged.status
        WHEN 'nodeDrain' THEN concat_ws(': ', o.nodeDrain.step, o.nodeDrain.message)
        WHEN 'scaledUp' THEN concat(
            'from ', coalesce(o.scaledUp.fromSize, 0), ' to ', o.scaledUp.toSize, ' nodes'
        )
        WHEN 'nodeProvisioned' THEN concat_ws(
            ': ', o.nodeProvisioned."group", o.nodeProvisioned.message
        )
        WHEN 'nodeRemoval' THEN concat_ws(': ', o.nodeRemoval.step, o.nodeRemoval.message)
        WHEN 'noScaleUp' THEN array_to_string(
            list_transform(
                o.noScaleUp.groups, lambda g: g."group" || ': ' || array_to_string(g.reasons, ', ')
            ),
            '; '
        )
        WHEN 'made' THEN 'by ' || o.made.owner.kind || ' ' || o.made.owner.namespace || '/'
            || o.made.owner.name
        WHEN 'refused' THEN o.refused.message
        WHEN 'invalidPlacement' THEN concat_ws(
            ': ', o.invalidPlacement.violations[1].cause, o.invalidPlacement.violations[1].message
        )
        WHEN 'invalidPreemption' THEN concat_ws(
            ': ', o.invalidPreemption.violations[1].cause, o.invalidPreemption.violations[1].message
        )
        WHEN 'rejected' THEN concat_ws(': ', o.rejected.reason, o.rejected.message)
    END AS detail
FROM log
"""

_ATTEMPTS = f"""
WITH nominated AS ({_NOMINATED})
SELECT log.*,
    coalesce(o.scheduled.attempts, o.failedScheduling.attempts) AS attempt,
    CASE kind WHEN 'scheduled' THEN 'Scheduled' ELSE o.failedScheduling.reason END AS result,
    o.scheduled.nodeName AS node_name,
    CASE kind WHEN 'scheduled' THEN coalesce(o.scheduled.waitedNs, 0) END AS waited_ns,
    CASE kind WHEN 'scheduled' THEN coalesce(o.scheduled.tookNs, 0) END AS took_ns,
    r.event AS moved_by,
    CASE WHEN r.event IS NOT NULL THEN coalesce(r.timeNs, 0) END AS moved_ns,
    r.activeTimeNs AS active_ns,
    o.scheduled.feasibleNodes AS feasible_nodes,
    o.scheduled.tiedNodes AS tied_nodes,
    o.scheduled.score AS score,
    o.failedScheduling.message AS message,
    n.nodeName AS nominated_node,
    n.decidedBy AS decided_by,
    n.candidates AS candidates,
    CASE WHEN n IS NOT NULL THEN coalesce(len(n.victims), 0) END AS victims
FROM (
    SELECT *, coalesce(o.scheduled.requeue, o.failedScheduling.requeue) AS r FROM log
    WHERE kind IN ('scheduled', 'failedScheduling')
) AS log LEFT JOIN nominated USING (sequence)
"""  # noqa: S608 - made of this module's own constants

_PREEMPTIONS = f"""
WITH victims AS (
    SELECT *, o.preempted."by".uid AS by_uid FROM log
    WHERE kind = 'preempted' AND refused IS NULL
),
nominated AS (
    SELECT uid, sequence, o.nominated AS n FROM log
    WHERE kind = 'nominated' AND o.nominated.nodeName IS NOT NULL AND refused IS NULL
        AND o.nominated.expected IS NULL
)
SELECT victims.*, victim.priority,
    {_OWNER.format("victim")} AS owner,
    o.preempted.nodeName AS node_name,
    o.preempted."by".namespace AS by_namespace,
    o.preempted."by".name AS by_name,
    preemptor.priority AS by_priority,
    {_OWNER.format("preemptor")} AS by_owner,
    coalesce(o.preempted.violatesBudget, false) AS violates_budget,
    n.decidedBy AS decided_by,
    n.candidates AS candidates
FROM victims
ASOF LEFT JOIN nominated
    ON victims.by_uid = nominated.uid AND victims.sequence > nominated.sequence
LEFT JOIN draft_pods AS victim ON victim.uid = victims.uid
LEFT JOIN draft_pods AS preemptor ON preemptor.uid = victims.by_uid
"""  # noqa: S608 - made of this module's own constants

_EVICTIONS = f"""
SELECT *,
    {_AMOUNT.format("threshold")} AS threshold_amount,
    {_AMOUNT.format("available")} AS available_amount
FROM (
    SELECT log.*, pod.priority, {_OWNER.format("pod")} AS owner,
        o.evicted.nodeName AS node_name, o.evicted.signal AS signal, o.evicted.message AS message,
        o.evicted.gracePeriodS AS grace_period_s,
        nullif(regexp_extract(o.evicted.message, 'Threshold quantity: ([^ ,]+),', 1), '')
            AS threshold,
        nullif(regexp_extract(o.evicted.message, ', available: ([^ ]+)\\. ', 1), '') AS available
    FROM log LEFT JOIN draft_pods AS pod ON pod.uid = log.uid
    WHERE kind = 'evicted'
)
"""  # noqa: S608 - made of this module's own constants

_OOM_KILLS = f"""
SELECT log.*, pod.priority, {_OWNER.format("pod")} AS owner,
    o.oomKilled.nodeName AS node_name, o.oomKilled.container AS container,
    o.oomKilled.limitOf AS limit_of, o.oomKilled.limitBytes AS limit_bytes,
    o.oomKilled.usageBytes AS usage_bytes, o.oomKilled.oomScoreAdj AS oom_score_adj,
    coalesce(o.oomKilled.containerSurvives, false) AS container_survives
FROM log LEFT JOIN draft_pods AS pod ON pod.uid = log.uid
WHERE kind = 'oomKilled'
"""  # noqa: S608 - made of this module's own constants
_FAILED_CREATES = """
SELECT *, o.refused.message AS message, o.refused.pods AS pods,
    o.refused.owner.kind || ' ' || o.refused.owner.namespace || '/' || o.refused.owner.name AS owner
FROM log WHERE kind = 'refused'
"""

REFUSED_BY_OWNER = """
SELECT o.refused.owner.uid, CAST(sum(o.refused.pods) AS BIGINT) FROM log
WHERE kind = 'refused' AND o.refused.owner IS NOT NULL GROUP BY ALL ORDER BY ALL
"""
"""Refused pods by the UID of the controller that tried to create them."""

_NODES = """
SELECT node.* EXCLUDE (removed_ns), gone.removed_ns
FROM (FROM draft_nodes WHERE added_ns IS NOT NULL) AS node
ASOF LEFT JOIN (FROM draft_nodes WHERE removed_ns IS NOT NULL) AS gone
    ON node.node_name = gone.node_name AND node.added_ns <= gone.removed_ns
"""

SELECTS: Mapping[str, str] = {
    **{name: f"FROM draft_{name}" for name in TABLES},
    "pods": _PODS,
    "decisions": _DECISIONS,
    "attempts": _ATTEMPTS,
    "preemptions": _PREEMPTIONS,
    "evictions": _EVICTIONS,
    "oom_kills": _OOM_KILLS,
    "failed_creates": _FAILED_CREATES,
    "nodes": _NODES,
}
"""The query of each table in replay.results.schema; columns that the table lacks are dropped."""
