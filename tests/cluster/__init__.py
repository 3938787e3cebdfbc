"""A package, so that its fixtures end after its last test: the cluster needs CPU as long as it runs."""
