"""NodeName: a pod with spec.nodeName fits no other node."""
