"""What the service keeps of runs in its database."""
