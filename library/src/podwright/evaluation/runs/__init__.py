"""The runs of an evaluation: what answers, what is recorded, and what is checked."""
