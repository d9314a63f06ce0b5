"""The scheduler service, with its preemptor."""
