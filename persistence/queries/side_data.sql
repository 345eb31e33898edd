-- The side data of one partition of the store.
SELECT name, content
FROM side_data
WHERE partition = %s;
