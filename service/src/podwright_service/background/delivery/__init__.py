"""What tells others of the ends of runs."""
