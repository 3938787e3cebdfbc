"""Commands that bring components into images, fleets and other repositories."""
