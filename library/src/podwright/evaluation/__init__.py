"""Evaluation: the same cases with several configurations of a component, and what can be said of the difference."""
