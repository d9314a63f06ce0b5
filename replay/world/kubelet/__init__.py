"""What kubelets do: pods' lives on nodes, images, usage and node pressure."""
