"""Kubernetes objects on the wire: messages, JSON, and the values of services.kube."""
