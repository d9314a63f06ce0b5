"""Readers of KubeSchedulerConfiguration and KubeletConfiguration files."""
