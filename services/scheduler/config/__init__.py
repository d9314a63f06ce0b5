"""KubeSchedulerConfiguration, read as it is."""
