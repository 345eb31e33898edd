-- How many tasks of a type ended in which state in the partitions that were dropped: they count as ended all the same.
CREATE TABLE dropped_totals (
    task_type   text    NOT NULL,
    state       text    NOT NULL,
    task_count  bigint  NOT NULL,
    PRIMARY KEY (task_type, state)
);
