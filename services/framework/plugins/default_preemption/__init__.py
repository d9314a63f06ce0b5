"""DefaultPreemption: the PostFilter plugin that preempts pods of lower priority."""
