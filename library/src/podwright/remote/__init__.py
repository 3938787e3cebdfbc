"""Components in other containers."""
