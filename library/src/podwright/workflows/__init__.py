"""Workflows: running steps over one context, and going on where a run stopped."""
