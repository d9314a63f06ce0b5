"""KubeSchedulerConfiguration, read from its file."""
