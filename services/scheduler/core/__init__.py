"""The scheduler's pure core: snapshot, framework, plugins, preemption."""
