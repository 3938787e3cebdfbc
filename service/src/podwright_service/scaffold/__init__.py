"""The files from which `podwright new` creates a component folder."""
