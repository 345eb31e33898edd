-- Who may do what in TideQ's schema, and nothing outside it. Run by a superuser before the first `tideq migrate`, and once
-- more after it and after every upgrade; it repeats well:
--
--   psql --dbname tideq --file postgres-roles.sql
--
-- Nobody can log in until you give each role a password (\password tideq_api, …) or a certificate. For another queue than
-- `default` the schema is called tideq_<queue>: replace the name.

DO $$
BEGIN
    -- Owns the tables; nobody logs in as it. Making and dropping partitions needs an owner.
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'tideq_owner') THEN CREATE ROLE tideq_owner NOLOGIN; END IF;
    -- `tideq migrate`, `tideq prune`.
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'tideq_migrate') THEN CREATE ROLE tideq_migrate LOGIN; END IF;
    -- `tideq monitor`: makes partitions ahead, drops old ones, tells of new ways to die.
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'tideq_monitor') THEN CREATE ROLE tideq_monitor LOGIN; END IF;
    -- `tideq replicate`: writes history.
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'tideq_replicator') THEN CREATE ROLE tideq_replicator LOGIN; END IF;
    -- `tideq serve`: reads, deletes what people clean up, and moves history into a new epoch when its store was lost.
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'tideq_api') THEN CREATE ROLE tideq_api LOGIN; END IF;
    -- For reports and people who look.
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'tideq_reader') THEN CREATE ROLE tideq_reader LOGIN; END IF;
END
$$;

-- What these two make belongs to the owner, whoever of them made it.
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
    -- `tideq migrate` makes sure that there is a schema, and PostgreSQL asks for this even where there is one.
    EXECUTE format('GRANT CREATE ON DATABASE %I TO tideq_owner', current_database());
END
$$;

-- For tables that are there, and for those that migrations will make.
GRANT SELECT ON ALL TABLES IN SCHEMA tideq TO tideq_replicator, tideq_api, tideq_reader;
GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA tideq TO tideq_replicator;
ALTER DEFAULT PRIVILEGES FOR ROLE tideq_owner IN SCHEMA tideq
    GRANT SELECT ON TABLES TO tideq_replicator, tideq_api, tideq_reader;
ALTER DEFAULT PRIVILEGES FOR ROLE tideq_owner IN SCHEMA tideq GRANT INSERT, UPDATE, DELETE ON TABLES TO tideq_replicator;

-- The API's few writes, on tables that `tideq migrate` makes.
DO $$
BEGIN
    IF to_regclass('tideq.migrations') IS NULL THEN
        RAISE NOTICE 'there are no tables yet: run this file again after tideq migrate';
        RETURN;
    END IF;
    REVOKE INSERT, UPDATE, DELETE ON tideq.migrations FROM tideq_replicator;
    -- Cleaning up.
    GRANT DELETE ON tideq.tasks, tideq.task_events, tideq.task_terms, tideq.dead_letter_tasks TO tideq_api;
    -- What was cleaned up is kept from coming back. A schema of an earlier version has no such table yet.
    IF to_regclass('tideq.tombstones') IS NOT NULL THEN
        GRANT INSERT, UPDATE ON tideq.tombstones TO tideq_api;
    END IF;
    -- Whoever brings a task back from history locks its row, which takes leave to change a column.
    GRANT UPDATE (task_id) ON tideq.tasks TO tideq_api;
    -- A store that was lost begins a new epoch, and history notes it first.
    GRANT INSERT, UPDATE ON tideq.checkpoints TO tideq_api;
END
$$;
