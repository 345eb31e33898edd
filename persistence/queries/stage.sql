-- Where changes to known tasks are put before they are applied; one a session, empty between transactions.
CREATE TEMPORARY TABLE IF NOT EXISTS staged (
    task_id uuid, epoch integer, version integer, state text, reason text, priority text, worker_id text,
    ended_at timestamptz, record text, result text, error text
) ON COMMIT DELETE ROWS;
