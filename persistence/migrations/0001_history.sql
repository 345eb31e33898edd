-- The history of one queue. Tables live in a schema of the queue's own and name each other unqualified.
--
-- Everything that grows is partitioned by task id: ids are UUIDv7, so ranges of ids are ranges of time, a look-up by id
-- touches one partition, and what is old is dropped whole. The default partitions take ids whose time is far off, which
-- only clients that choose their own ids can make.

-- The latest state of every task. `record` is what the store keeps of it, with unit separators (U+001F) for its zero
-- bytes; `idempotency` is the name of its key and a fingerprint of the submission;
-- `attributes` is the part of its definition that most tasks do not have, as JSON.
CREATE TABLE tasks (
    task_id     uuid        NOT NULL PRIMARY KEY,
    epoch       integer     NOT NULL,
    version     integer     NOT NULL,
    state       text        NOT NULL,
    reason      text        NOT NULL,
    task_type   text        NOT NULL,
    priority    text        NOT NULL,
    worker_id   text,
    trace_id    uuid,
    idempotency text,
    created_at  timestamptz NOT NULL,
    ended_at    timestamptz,
    parameters  text        NOT NULL,
    attributes  text        NOT NULL,
    record      text        NOT NULL,
    result      text,
    error       text
) PARTITION BY RANGE (task_id);

-- One index a filter, each ending with the id: a page is read in order and stops when it is full.
CREATE INDEX tasks_by_state ON tasks (state, task_id);
CREATE INDEX tasks_by_type ON tasks (task_type, task_id);
CREATE INDEX tasks_by_type_and_state ON tasks (task_type, state, task_id);
CREATE INDEX tasks_by_priority ON tasks (priority, task_id);
CREATE INDEX tasks_by_worker ON tasks (worker_id, task_id) WHERE worker_id IS NOT NULL;
CREATE INDEX tasks_by_trace ON tasks (trace_id, task_id) WHERE trace_id IS NOT NULL;
CREATE INDEX tasks_with_key ON tasks (task_id) WHERE idempotency IS NOT NULL;

-- Every transition, with the error it brought.
CREATE TABLE task_events (
    task_id    uuid        NOT NULL,
    epoch      integer     NOT NULL,
    version    integer     NOT NULL,
    at         timestamptz NOT NULL,
    state      text        NOT NULL,
    reason     text        NOT NULL,
    attempt    integer     NOT NULL,
    worker_id  text,
    error      text,
    PRIMARY KEY (task_id, epoch, version)
) PARTITION BY RANGE (task_id);

-- Words a task can be found by: tags, searchable parameters, words of its errors. A full-text index would have to sort
-- all matches of a common word; here a page of matches comes in the order of the ids.
CREATE TABLE task_terms (
    term     text NOT NULL,
    task_id  uuid NOT NULL,
    PRIMARY KEY (term, task_id)
) PARTITION BY RANGE (task_id);

-- What is dead now; a replay or retry takes the row away.
CREATE TABLE dead_letter_tasks (
    task_id    uuid        NOT NULL PRIMARY KEY,
    died_at    timestamptz NOT NULL,
    task_type  text        NOT NULL,
    priority   text        NOT NULL,
    reason     text        NOT NULL,
    pattern    text        NOT NULL,
    message    text        NOT NULL,
    retriable  boolean     NOT NULL
) PARTITION BY RANGE (task_id);

CREATE INDEX dead_letters_by_death ON dead_letter_tasks (died_at, task_id);
CREATE INDEX dead_letters_by_type ON dead_letter_tasks (task_type, died_at, task_id);
CREATE INDEX dead_letters_by_reason ON dead_letter_tasks (reason, died_at, task_id);
CREATE INDEX dead_letters_by_pattern ON dead_letter_tasks (pattern, died_at, task_id);

-- Every pattern of deaths of a task type, kept when its dead letters are gone: a pattern that returns is not new.
-- `alerted_count` is the number of deaths at the last alert, so that of many monitors one sends it.
CREATE TABLE dead_letter_patterns (
    pattern      text        NOT NULL PRIMARY KEY,
    task_type    text        NOT NULL,
    reason       text        NOT NULL,
    message      text        NOT NULL,
    first_seen   timestamptz NOT NULL,
    last_seen    timestamptz NOT NULL,
    death_count  bigint      NOT NULL,
    alerted_count bigint     NOT NULL DEFAULT 0
);

-- How far history has come, for each partition of the queue; moved in the transaction that writes the rows.
CREATE TABLE checkpoints (
    partition    smallint    NOT NULL PRIMARY KEY,
    epoch        integer     NOT NULL,
    entry_id     text        NOT NULL,
    now_ms       bigint      NOT NULL,
    event_count  bigint      NOT NULL,
    moved_at     timestamptz NOT NULL DEFAULT now()
);

-- Events that could not be written, and later ones of the same task, for an operator. `now_ms` is when an event happened,
-- by the store's clock: a retry writes it as if it had never been parked.
CREATE TABLE parked_events (
    parked_id   bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    partition   smallint    NOT NULL,
    epoch       integer     NOT NULL,
    entry_id    text        NOT NULL,
    task_id     text        NOT NULL,
    version     integer     NOT NULL,
    record      bytea       NOT NULL,
    body        bytea,
    definition  bytea,
    problem     text        NOT NULL,
    parked_at   timestamptz NOT NULL DEFAULT now(),
    now_ms      bigint
);

CREATE INDEX parked_by_task ON parked_events (task_id, parked_id);

-- A copy of the store's data besides tasks (access keys, pauses and limits, workers, the format), in case it is lost.
CREATE TABLE side_data (
    partition  smallint    NOT NULL,
    name       text        NOT NULL,
    content    bytea       NOT NULL,
    copied_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (partition, name)
);

-- Purged tasks, for a day: no fail-over, rebuild or reconciliation restores them. A later task of the same id has another
-- `created_ms`, by the store's clock.
CREATE TABLE tombstones (
    task_id     uuid        NOT NULL PRIMARY KEY,
    epoch       integer     NOT NULL,
    version     integer     NOT NULL,
    created_ms  bigint      NOT NULL,
    purged_at   timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX tombstones_by_purge ON tombstones (purged_at);

-- How many tasks of each type ended in each state in dropped partitions, for the totals.
CREATE TABLE dropped_totals (
    task_type   text    NOT NULL,
    state       text    NOT NULL,
    task_count  bigint  NOT NULL,
    PRIMARY KEY (task_type, state)
);

CREATE TABLE tasks_default PARTITION OF tasks DEFAULT;
CREATE TABLE task_events_default PARTITION OF task_events DEFAULT;
CREATE TABLE task_terms_default PARTITION OF task_terms DEFAULT;
CREATE TABLE dead_letter_tasks_default PARTITION OF dead_letter_tasks DEFAULT;
