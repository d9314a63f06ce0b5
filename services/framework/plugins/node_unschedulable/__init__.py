"""NodeUnschedulable: a cordoned node takes only pods that tolerate its taint."""
