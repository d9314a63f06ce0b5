"""The autoscaler's messages, decoded to its core's values and back."""
