"""The commands of `podwright eval`."""
