-- When a parked event happened, by the store's clock in Unix milliseconds: a retry writes it as if it had never been
-- parked. Events parked before this have none; their entry's id carries nearly the same.
ALTER TABLE parked_events ADD COLUMN now_ms bigint;
