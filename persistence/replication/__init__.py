"""From the outbox to rows: nothing missing, nothing twice, whoever dies on the way."""
