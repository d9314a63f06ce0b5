"""TaintToleration: untolerated taints refuse a node or lower its score."""
