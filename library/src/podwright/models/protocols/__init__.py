"""The protocols of providers: requests and answers of chat completions and messages."""
