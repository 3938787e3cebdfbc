"""Fleets: the values of the Helm chart for a set of blueprints."""
