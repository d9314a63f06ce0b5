"""Tests of services/kube."""
