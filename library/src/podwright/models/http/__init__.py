"""Requests to the HTTP APIs of providers, their streams and their failures."""
