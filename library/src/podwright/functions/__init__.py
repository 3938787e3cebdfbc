"""Calling the functions of a caller, and what they are told of their run."""
