"""Who may start a run, when, and within which limits."""
