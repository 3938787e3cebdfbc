"""Images: a component folder becomes one, and one is looked at, with the Docker client of this machine."""
