"""Component folders: finding blueprints and code, and loading components."""
