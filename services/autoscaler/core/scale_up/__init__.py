"""Scale-up: which group gets how many nodes for the pods that fit nowhere."""
