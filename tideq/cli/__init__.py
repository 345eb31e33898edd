"""The `tideq` command. Each verb imports what it needs when it runs: `tideq --help` stays quick."""

import cyclopts

app = cyclopts.App(name="tideq", help="A task queue over HTTP: one sorted set, leases that come back by themselves.")
app.command("tideq.cli.up:up", help="Run the stores and the service on this machine, data in one folder.")
app.command("tideq.cli.serve:serve", help="Run the service against a store given by REDIS_URL.")
app.command("tideq.cli.worker:worker", help="Run an application's handlers.")
app.command("tideq.cli.monitor:monitor", help="Housekeeping: recovery, probes, partitions.")
app.command("tideq.cli.history:replicate", help="Copy what happens in the queue to history in PostgreSQL.")
app.command("tideq.cli.history:migrate", help="Bring the database's schema up to date.")
app.command("tideq.cli.history:rebuild", help="Fill an empty store from history.")
app.command("tideq.cli.history:reconcile", help="Mend a store that lost writes.")
app.command("tideq.cli.history:prune", help="Drop the oldest partitions of history.")
app.command("tideq.cli.openapi:openapi", help="Print the OpenAPI document of the HTTP API.")

keys = cyclopts.App(name="keys", help="Make, list and revoke access keys.")
keys.command("tideq.cli.keys:create", help="Make a key and show it, this once.")
keys.command("tideq.cli.keys:show", name="list", help="List the keys, without their secrets.")
keys.command("tideq.cli.keys:revoke", help="Shut a key out, within a few seconds.")
app.command(keys)


def main() -> None:
    app()
