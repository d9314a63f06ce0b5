"""Look-ahead: events that wait, and rounds that are sent ahead, to save exchanges."""
