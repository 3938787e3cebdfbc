"""Estimates of what a run needs, before it is made: sizes in place of values."""
