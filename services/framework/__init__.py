"""The scheduling framework: snapshot, plugins and their verdicts, preemption."""
