"""The connection to a Podwright service: requests, streams of events, and the documents that the service sends.

The client and remote components share it.
"""
