"""Overrides of configuration files: the scheduler's, the kubelets' and the autoscaler's."""
