"""Controllers of pods: each kind replaces what is preempted, evicted or lost in its own way."""
