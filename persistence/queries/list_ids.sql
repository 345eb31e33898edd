-- As list_tasks, of the ids alone.
--   {found}       see paths.py: what it finds, for the parameters it has
SELECT task_id::text FROM {found} AS found;
