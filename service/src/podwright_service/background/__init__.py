"""Background runs: stored in a database, performed by any process of the service, and resumed where they stood."""
