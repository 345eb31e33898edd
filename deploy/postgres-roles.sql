-- Roles and grants for TideQ's schema, and for nothing outside it. Run it as a superuser before the first `tideq migrate`,
-- and again after that and after every upgrade; it is safe to repeat:
--
--   psql --dbname tideq --file postgres-roles.sql
--
-- The roles cannot log in until each has a password (\password tideq_api, …) or a certificate. For a queue other than
-- `default` the schema is called tideq_<queue>: replace the name.

DO $$
BEGIN
    -- Owns the tables and cannot log in. Only the owner may create and drop partitions.
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'tideq_owner') THEN CREATE ROLE tideq_owner NOLOGIN; END IF;
    -- `tideq migrate`, `tideq prune`.
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'tideq_migrate') THEN CREATE ROLE tideq_migrate LOGIN; END IF;
    -- `tideq monitor`: creates partitions ahead, drops old ones, alerts on new patterns of dead letters.
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'tideq_monitor') THEN CREATE ROLE tideq_monitor LOGIN; END IF;
    -- `tideq replicate`: writes history.
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'tideq_replicator') THEN CREATE ROLE tideq_replicator LOGIN; END IF;
    -- `tideq serve`: reads, deletes cleaned-up tasks, and moves history into a new epoch when its store was lost.
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'tideq_api') THEN CREATE ROLE tideq_api LOGIN; END IF;
    -- Reads, for reports and dashboards.
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'tideq_reader') THEN CREATE ROLE tideq_reader LOGIN; END IF;
END
$$;

-- Tables created by either of these two roles belong to the owner.
GRANT tideq_owner TO tideq_migrate, tideq_monitor;
ALTER ROLE tideq_migrate SET role TO 'tideq_owner';
ALTER ROLE tideq_monitor SET role TO 'tideq_owner';

CREATE SCHEMA IF NOT EXISTS tideq AUTHORIZATION tideq_owner;
ALTER SCHEMA tideq OWNER TO tideq_owner;
REVOKE ALL ON SCHEMA tideq FROM PUBLIC;
GRANT USAGE ON SCHEMA tideq TO tideq_replicator, tideq_api, tideq_reader;

-- Rows are staged in a temporary table before they are applied.
DO $$
BEGIN
    EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database());
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO tideq_owner, tideq_replicator, tideq_api, tideq_reader', current_database());
    EXECUTE format('GRANT TEMPORARY ON DATABASE %I TO tideq_replicator', current_database());
    -- `tideq migrate` runs CREATE SCHEMA IF NOT EXISTS, which needs this grant even where the schema exists.
    EXECUTE format('GRANT CREATE ON DATABASE %I TO tideq_owner', current_database());
END
$$;

-- For existing tables, and for tables that later migrations create.
GRANT SELECT ON ALL TABLES IN SCHEMA tideq TO tideq_replicator, tideq_api, tideq_reader;
GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA tideq TO tideq_replicator;
ALTER DEFAULT PRIVILEGES FOR ROLE tideq_owner IN SCHEMA tideq
    GRANT SELECT ON TABLES TO tideq_replicator, tideq_api, tideq_reader;
ALTER DEFAULT PRIVILEGES FOR ROLE tideq_owner IN SCHEMA tideq GRANT INSERT, UPDATE, DELETE ON TABLES TO tideq_replicator;

-- The few writes of the API, on tables that `tideq migrate` creates.
DO $$
BEGIN
    IF to_regclass('tideq.migrations') IS NULL THEN
        RAISE NOTICE 'the tables do not exist yet: run this file again after tideq migrate';
        RETURN;
    END IF;
    REVOKE INSERT, UPDATE, DELETE ON tideq.migrations FROM tideq_replicator;
    -- Cleaning up.
    GRANT DELETE ON tideq.tasks, tideq.task_events, tideq.task_terms, tideq.dead_letter_tasks TO tideq_api;
    -- Tombstones keep deleted tasks from being restored. A schema of an earlier version has no such table yet.
    IF to_regclass('tideq.tombstones') IS NOT NULL THEN
        GRANT INSERT, UPDATE ON tideq.tombstones TO tideq_api;
    END IF;
    -- Requeuing a task from history locks its row, which needs the right to update a column.
    GRANT UPDATE (task_id) ON tideq.tasks TO tideq_api;
    -- After the loss of the store a new epoch begins, which is written to history first.
    GRANT INSERT, UPDATE ON tideq.checkpoints TO tideq_api;
END
$$;
