"""The kubelets: pod lifecycles, images, usage and node pressure."""
