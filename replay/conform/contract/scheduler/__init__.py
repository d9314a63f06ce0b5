"""The scheduler's checks, in the order of the rules in docs/write-a-scheduler.md."""
