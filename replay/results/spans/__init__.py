"""A run as traces: a trace a pod, one for the run, and the Trace Event Format."""
