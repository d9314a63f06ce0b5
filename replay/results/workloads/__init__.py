"""Judges each workload over a run: its desired and ready pods, and its disruption budgets."""
