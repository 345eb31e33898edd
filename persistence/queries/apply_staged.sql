-- Applies staged changes to their tasks, where they are newer. An error stays until a later one replaces it.
UPDATE tasks
SET epoch = staged.epoch, version = staged.version, state = staged.state, reason = staged.reason,
    priority = staged.priority, worker_id = staged.worker_id, ended_at = staged.ended_at, record = staged.record,
    result = staged.result, error = coalesce(staged.error, tasks.error)
FROM staged
WHERE tasks.task_id = staged.task_id
  AND (tasks.epoch, tasks.version) < (staged.epoch, staged.version);
