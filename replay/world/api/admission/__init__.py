"""Admission of new pods, as in an API server: fills in defaults, and admits or rejects the pod."""
