"""What `podwright new` makes a component folder from."""
