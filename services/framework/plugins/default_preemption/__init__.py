"""DefaultPreemption: the PostFilter plugin that calls the preemptor."""
