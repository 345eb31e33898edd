-- What the migrations add up to, written by `make schema`: to be read, not run. A test keeps it true.
-- Partitions for spans of time are made beside these by `tideq migrate`, `tideq prune` and the monitor.

CREATE TABLE checkpoints (
    partition smallint NOT NULL,
    epoch integer NOT NULL,
    entry_id text NOT NULL,
    now_ms bigint NOT NULL,
    event_count bigint NOT NULL,
    moved_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE dead_letter_patterns (
    pattern text NOT NULL,
    task_type text NOT NULL,
    reason text NOT NULL,
    message text NOT NULL,
    first_seen timestamp with time zone NOT NULL,
    last_seen timestamp with time zone NOT NULL,
    death_count bigint NOT NULL,
    alerted_count bigint DEFAULT 0 NOT NULL
);

CREATE TABLE dead_letter_tasks (
    task_id uuid NOT NULL,
    died_at timestamp with time zone NOT NULL,
    task_type text NOT NULL,
    priority text NOT NULL,
    reason text NOT NULL,
    pattern text NOT NULL,
    message text NOT NULL,
    retriable boolean NOT NULL
)
PARTITION BY RANGE (task_id);

CREATE TABLE dead_letter_tasks_default (
    task_id uuid NOT NULL,
    died_at timestamp with time zone NOT NULL,
    task_type text NOT NULL,
    priority text NOT NULL,
    reason text NOT NULL,
    pattern text NOT NULL,
    message text NOT NULL,
    retriable boolean NOT NULL
);

CREATE TABLE dropped_totals (
    task_type text NOT NULL,
    state text NOT NULL,
    task_count bigint NOT NULL
);

CREATE TABLE migrations (
    number integer NOT NULL,
    name text NOT NULL,
    digest text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE parked_events (
    parked_id bigint NOT NULL,
    partition smallint NOT NULL,
    epoch integer NOT NULL,
    entry_id text NOT NULL,
    task_id text NOT NULL,
    version integer NOT NULL,
    record bytea NOT NULL,
    body bytea,
    definition bytea,
    problem text NOT NULL,
    parked_at timestamp with time zone DEFAULT now() NOT NULL,
    now_ms bigint
);

ALTER TABLE parked_events ALTER COLUMN parked_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME parked_events_parked_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE side_data (
    partition smallint NOT NULL,
    name text NOT NULL,
    content bytea NOT NULL,
    copied_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE task_events (
    task_id uuid NOT NULL,
    epoch integer NOT NULL,
    version integer NOT NULL,
    at timestamp with time zone NOT NULL,
    state text NOT NULL,
    reason text NOT NULL,
    attempt integer NOT NULL,
    worker_id text,
    error text
)
PARTITION BY RANGE (task_id);

CREATE TABLE task_events_default (
    task_id uuid NOT NULL,
    epoch integer NOT NULL,
    version integer NOT NULL,
    at timestamp with time zone NOT NULL,
    state text NOT NULL,
    reason text NOT NULL,
    attempt integer NOT NULL,
    worker_id text,
    error text
);

CREATE TABLE task_terms (
    term text NOT NULL,
    task_id uuid NOT NULL
)
PARTITION BY RANGE (task_id);

CREATE TABLE task_terms_default (
    term text NOT NULL,
    task_id uuid NOT NULL
);

CREATE TABLE tasks (
    task_id uuid NOT NULL,
    epoch integer NOT NULL,
    version integer NOT NULL,
    state text NOT NULL,
    reason text NOT NULL,
    task_type text NOT NULL,
    priority text NOT NULL,
    worker_id text,
    trace_id uuid,
    idempotency text,
    created_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    parameters text NOT NULL,
    attributes text NOT NULL,
    record text NOT NULL,
    result text,
    error text
)
PARTITION BY RANGE (task_id);

CREATE TABLE tasks_default (
    task_id uuid NOT NULL,
    epoch integer NOT NULL,
    version integer NOT NULL,
    state text NOT NULL,
    reason text NOT NULL,
    task_type text NOT NULL,
    priority text NOT NULL,
    worker_id text,
    trace_id uuid,
    idempotency text,
    created_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    parameters text NOT NULL,
    attributes text NOT NULL,
    record text NOT NULL,
    result text,
    error text
);

CREATE TABLE tombstones (
    task_id uuid NOT NULL,
    epoch integer NOT NULL,
    version integer NOT NULL,
    created_ms bigint NOT NULL,
    purged_at timestamp with time zone DEFAULT now() NOT NULL
);

ALTER TABLE ONLY dead_letter_tasks ATTACH PARTITION dead_letter_tasks_default DEFAULT;

ALTER TABLE ONLY task_events ATTACH PARTITION task_events_default DEFAULT;

ALTER TABLE ONLY task_terms ATTACH PARTITION task_terms_default DEFAULT;

ALTER TABLE ONLY tasks ATTACH PARTITION tasks_default DEFAULT;

ALTER TABLE ONLY checkpoints
    ADD CONSTRAINT checkpoints_pkey PRIMARY KEY (partition);

ALTER TABLE ONLY dead_letter_patterns
    ADD CONSTRAINT dead_letter_patterns_pkey PRIMARY KEY (pattern);

ALTER TABLE ONLY dead_letter_tasks
    ADD CONSTRAINT dead_letter_tasks_pkey PRIMARY KEY (task_id);

ALTER TABLE ONLY dead_letter_tasks_default
    ADD CONSTRAINT dead_letter_tasks_default_pkey PRIMARY KEY (task_id);

ALTER TABLE ONLY dropped_totals
    ADD CONSTRAINT dropped_totals_pkey PRIMARY KEY (task_type, state);

ALTER TABLE ONLY migrations
    ADD CONSTRAINT migrations_pkey PRIMARY KEY (number);

ALTER TABLE ONLY parked_events
    ADD CONSTRAINT parked_events_pkey PRIMARY KEY (parked_id);

ALTER TABLE ONLY side_data
    ADD CONSTRAINT side_data_pkey PRIMARY KEY (partition, name);

ALTER TABLE ONLY task_events
    ADD CONSTRAINT task_events_pkey PRIMARY KEY (task_id, epoch, version);

ALTER TABLE ONLY task_events_default
    ADD CONSTRAINT task_events_default_pkey PRIMARY KEY (task_id, epoch, version);

ALTER TABLE ONLY task_terms
    ADD CONSTRAINT task_terms_pkey PRIMARY KEY (term, task_id);

ALTER TABLE ONLY task_terms_default
    ADD CONSTRAINT task_terms_default_pkey PRIMARY KEY (term, task_id);

ALTER TABLE ONLY tasks
    ADD CONSTRAINT tasks_pkey PRIMARY KEY (task_id);

ALTER TABLE ONLY tasks_default
    ADD CONSTRAINT tasks_default_pkey PRIMARY KEY (task_id);

ALTER TABLE ONLY tombstones
    ADD CONSTRAINT tombstones_pkey PRIMARY KEY (task_id);

CREATE INDEX dead_letters_by_death ON ONLY dead_letter_tasks USING btree (died_at, task_id);

CREATE INDEX dead_letter_tasks_default_died_at_task_id_idx ON dead_letter_tasks_default USING btree (died_at, task_id);

CREATE INDEX dead_letters_by_pattern ON ONLY dead_letter_tasks USING btree (pattern, died_at, task_id);

CREATE INDEX dead_letter_tasks_default_pattern_died_at_task_id_idx ON dead_letter_tasks_default USING btree (pattern, died_at, task_id);

CREATE INDEX dead_letters_by_reason ON ONLY dead_letter_tasks USING btree (reason, died_at, task_id);

CREATE INDEX dead_letter_tasks_default_reason_died_at_task_id_idx ON dead_letter_tasks_default USING btree (reason, died_at, task_id);

CREATE INDEX dead_letters_by_type ON ONLY dead_letter_tasks USING btree (task_type, died_at, task_id);

CREATE INDEX dead_letter_tasks_default_task_type_died_at_task_id_idx ON dead_letter_tasks_default USING btree (task_type, died_at, task_id);

CREATE INDEX parked_by_task ON parked_events USING btree (task_id, parked_id);

CREATE INDEX tasks_by_priority ON ONLY tasks USING btree (priority, task_id);

CREATE INDEX tasks_by_state ON ONLY tasks USING btree (state, task_id);

CREATE INDEX tasks_by_trace ON ONLY tasks USING btree (trace_id, task_id) WHERE (trace_id IS NOT NULL);

CREATE INDEX tasks_by_type ON ONLY tasks USING btree (task_type, task_id);

CREATE INDEX tasks_by_type_and_state ON ONLY tasks USING btree (task_type, state, task_id);

CREATE INDEX tasks_by_worker ON ONLY tasks USING btree (worker_id, task_id) WHERE (worker_id IS NOT NULL);

CREATE INDEX tasks_default_priority_task_id_idx ON tasks_default USING btree (priority, task_id);

CREATE INDEX tasks_default_state_task_id_idx ON tasks_default USING btree (state, task_id);

CREATE INDEX tasks_with_key ON ONLY tasks USING btree (task_id) WHERE (idempotency IS NOT NULL);

CREATE INDEX tasks_default_task_id_idx ON tasks_default USING btree (task_id) WHERE (idempotency IS NOT NULL);

CREATE INDEX tasks_default_task_type_state_task_id_idx ON tasks_default USING btree (task_type, state, task_id);

CREATE INDEX tasks_default_task_type_task_id_idx ON tasks_default USING btree (task_type, task_id);

CREATE INDEX tasks_default_trace_id_task_id_idx ON tasks_default USING btree (trace_id, task_id) WHERE (trace_id IS NOT NULL);

CREATE INDEX tasks_default_worker_id_task_id_idx ON tasks_default USING btree (worker_id, task_id) WHERE (worker_id IS NOT NULL);

CREATE INDEX tombstones_by_purge ON tombstones USING btree (purged_at);

ALTER INDEX dead_letters_by_death ATTACH PARTITION dead_letter_tasks_default_died_at_task_id_idx;

ALTER INDEX dead_letters_by_pattern ATTACH PARTITION dead_letter_tasks_default_pattern_died_at_task_id_idx;

ALTER INDEX dead_letter_tasks_pkey ATTACH PARTITION dead_letter_tasks_default_pkey;

ALTER INDEX dead_letters_by_reason ATTACH PARTITION dead_letter_tasks_default_reason_died_at_task_id_idx;

ALTER INDEX dead_letters_by_type ATTACH PARTITION dead_letter_tasks_default_task_type_died_at_task_id_idx;

ALTER INDEX task_events_pkey ATTACH PARTITION task_events_default_pkey;

ALTER INDEX task_terms_pkey ATTACH PARTITION task_terms_default_pkey;

ALTER INDEX tasks_pkey ATTACH PARTITION tasks_default_pkey;

ALTER INDEX tasks_by_priority ATTACH PARTITION tasks_default_priority_task_id_idx;

ALTER INDEX tasks_by_state ATTACH PARTITION tasks_default_state_task_id_idx;

ALTER INDEX tasks_with_key ATTACH PARTITION tasks_default_task_id_idx;

ALTER INDEX tasks_by_type_and_state ATTACH PARTITION tasks_default_task_type_state_task_id_idx;

ALTER INDEX tasks_by_type ATTACH PARTITION tasks_default_task_type_task_id_idx;

ALTER INDEX tasks_by_trace ATTACH PARTITION tasks_default_trace_id_task_id_idx;

ALTER INDEX tasks_by_worker ATTACH PARTITION tasks_default_worker_id_task_id_idx;
