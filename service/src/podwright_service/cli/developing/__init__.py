"""Commands for the work on a component."""
