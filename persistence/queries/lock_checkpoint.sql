-- Blocks the replicators of a partition until the transaction ends.
SELECT FROM checkpoints
WHERE partition = %s
FOR UPDATE;
