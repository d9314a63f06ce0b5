"""The autoscaler service: node groups grow and shrink as Cluster Autoscaler decides."""
