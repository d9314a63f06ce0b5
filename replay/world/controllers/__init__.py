"""The controllers: of pods, of nodes, of disruption budgets, of taints and of ended pods."""
