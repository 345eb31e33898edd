-- Where changes to known tasks are put before they are applied; one a session, empty between transactions.
-- Emptied by whoever fills it: ON COMMIT DELETE ROWS takes a third of a millisecond a transaction.
CREATE TEMPORARY TABLE IF NOT EXISTS staged (
    task_id uuid, epoch integer, version integer, state text, reason text, priority text, worker_id text,
    ended_at timestamptz, record text, result text, error text
);
