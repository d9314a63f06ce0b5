"""Whether each workload was whole: its desired and ready pods, and its disruption budgets."""
