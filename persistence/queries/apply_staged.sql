-- Staged changes over the tasks they are about, where they are newer. An error stays until a later one.
UPDATE tasks
SET epoch = staged.epoch, version = staged.version, state = staged.state, reason = staged.reason,
    priority = staged.priority, worker_id = staged.worker_id, ended_at = staged.ended_at, record = staged.record,
    result = staged.result, error = coalesce(staged.error, tasks.error)
FROM staged
WHERE tasks.task_id = staged.task_id
  AND (tasks.epoch, tasks.version) < (staged.epoch, staged.version);
