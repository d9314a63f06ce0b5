"""What an API server does to a new pod: it fills in defaults, and admits or refuses it."""
