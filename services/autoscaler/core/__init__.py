"""The cluster autoscaler without its transport: values in, decisions out."""
