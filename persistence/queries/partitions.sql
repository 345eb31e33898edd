-- The names of the partitions of `tasks`, without the default one.
SELECT child.relname
FROM pg_inherits
JOIN pg_class child ON child.oid = pg_inherits.inhrelid
WHERE pg_inherits.inhparent = 'tasks'::regclass
  AND child.relname <> 'tasks_default';
