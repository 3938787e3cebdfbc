"""What requests pass before and after the routes: keys, hosts, limits, slots, idempotency, errors, streams."""
