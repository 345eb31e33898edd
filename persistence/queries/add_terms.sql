-- Adds terms of tasks, existing ones skipped: two arrays, terms and ids.
INSERT INTO task_terms (term, task_id)
SELECT * FROM unnest(%s::text[], %s::uuid[])
ON CONFLICT DO NOTHING;
