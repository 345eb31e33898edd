-- As list_tasks, with the ids only.
--   {found}       the table expression of IndexOrder.found, with its parameters
SELECT task_id::text FROM {found} AS found;
