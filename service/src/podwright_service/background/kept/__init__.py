"""The conversations that the service keeps, in the database; see `podwright_service.conversations`."""
