"""A package, so that fixtures with the scope `package` stop the cluster after its last test."""
