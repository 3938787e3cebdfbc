"""Models of other vendors, called with LiteLLM."""
