"""VolumeBinding: a node must reach the pod's bound volumes, and have or get the unbound ones."""
