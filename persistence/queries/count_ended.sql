-- Ended tasks by type and state, with those of dropped partitions: an array of the terminal states.
SELECT task_type, state, sum(task_count)::bigint
FROM (
    SELECT task_type, state, count(*) AS task_count
    FROM tasks
    WHERE state = ANY (%s)
    GROUP BY task_type, state
    UNION ALL
    SELECT task_type, state, task_count
    FROM dropped_totals
) AS counted
GROUP BY task_type, state;
