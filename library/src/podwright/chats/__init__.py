"""Chats: model calls, tool calls and answers of an agent."""
