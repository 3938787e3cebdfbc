"""JSON data, texts and names: values without a run, a model or a schema."""
