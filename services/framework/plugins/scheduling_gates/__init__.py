"""SchedulingGates: a pod with scheduling gates does not enter activeQ."""
