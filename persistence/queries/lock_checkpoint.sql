-- Keeps replicators of a partition from writing until the transaction ends.
SELECT FROM checkpoints
WHERE partition = %s
FOR UPDATE;
