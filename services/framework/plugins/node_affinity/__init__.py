"""NodeAffinity: required and preferred node labels, and spec.nodeSelector."""
