"""The controllers: of workloads, nodes, disruption budgets, taints and ended pods."""
