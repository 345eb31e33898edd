-- The ids of staged changes whose tasks are not in history.
SELECT staged.task_id::text
FROM staged
WHERE NOT EXISTS (SELECT FROM tasks WHERE tasks.task_id = staged.task_id);
