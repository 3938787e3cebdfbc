"""Messages, conversations, templates, usage and decisions: the values that runs exchange."""
