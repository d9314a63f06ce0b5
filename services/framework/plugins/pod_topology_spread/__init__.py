"""PodTopologySpread: pods spread evenly over topology domains."""
