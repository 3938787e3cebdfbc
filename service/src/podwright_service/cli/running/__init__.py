"""Commands that run a component in a terminal."""
