"""From code to a component folder, and keeping the folder in step with the code."""
