-- The side data of one partition of the store.
SELECT name, content
FROM belongings
WHERE partition = %s;
