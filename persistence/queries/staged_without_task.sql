-- Staged changes whose task history does not have.
SELECT staged.task_id::text
FROM staged
WHERE NOT EXISTS (SELECT FROM tasks WHERE tasks.task_id = staged.task_id);
