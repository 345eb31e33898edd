-- What was purged, for a day: neither a fail-over nor a rebuild nor a reconciliation brings that life of a task back. A
-- later life of the same id is told from it by when it was created, by the store's clock in Unix milliseconds.
CREATE TABLE tombstones (
    task_id     uuid        NOT NULL PRIMARY KEY,
    epoch       integer     NOT NULL,
    version     integer     NOT NULL,
    created_ms  bigint      NOT NULL,
    purged_at   timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX tombstones_by_purge ON tombstones (purged_at);
