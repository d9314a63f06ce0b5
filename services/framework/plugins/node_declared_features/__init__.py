"""NodeDeclaredFeatures: nodes whose kubelet supports what a pod requires."""
