"""Which of several groups is scaled up."""
