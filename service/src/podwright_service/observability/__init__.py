"""Spans, metrics and log lines: subscribers of the events of runs."""
