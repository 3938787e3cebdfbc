"""What rows say: rates, comparisons, gates, and the report in its forms."""
