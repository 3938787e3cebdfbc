"""Inline blueprints: what they may name, and their inspection before they are built."""
