-- Tasks by state, of the states in the array.
SELECT state, count(*)
FROM tasks
WHERE state = ANY (%s)
GROUP BY state;
