-- What the store held besides tasks, of one partition.
SELECT name, content
FROM belongings
WHERE partition = %s;
