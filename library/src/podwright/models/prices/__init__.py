"""Prices of model calls, from the operator, the package and LiteLLM."""
