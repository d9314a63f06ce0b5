"""Random input by the thousand: nothing that a stranger sends may end a service or a command."""
