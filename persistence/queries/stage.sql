-- The staging table for changes of existing tasks; one for each session, empty between transactions.
-- The writer empties it: ON COMMIT DELETE ROWS costs a third of a millisecond a transaction (docs/history.md).
CREATE TEMPORARY TABLE IF NOT EXISTS staged (
    task_id uuid, epoch integer, version integer, state text, reason text, priority text, worker_id text,
    ended_at timestamptz, record text, result text, error text
);
