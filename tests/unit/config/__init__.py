"""Unit tests of the readers of Kubernetes' own configuration files."""
