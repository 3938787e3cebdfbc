"""The OpenAI-compatible routes: translations between OpenAI's protocols and a run of the served component.

Facts: OpenAI's API reference for Chat Completions, and the Open Responses specification (openresponses.org).
"""
