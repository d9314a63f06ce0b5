"""The checks of a cluster autoscaler, by the rules of docs/write-an-autoscaler.md."""
