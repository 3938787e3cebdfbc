"""Images of components: build one from a component folder, and inspect one, with the Docker client."""
