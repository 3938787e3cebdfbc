"""JSON Schema: checking data, and the problems that are found."""
