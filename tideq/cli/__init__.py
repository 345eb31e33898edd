"""The `tideq` command. Each verb imports what it needs when it runs: `tideq --help` stays quick."""

import cyclopts

app = cyclopts.App(name="tideq", help="A task queue over HTTP: one sorted set, leases that come back by themselves.")
app.command("tideq.cli.up:up", help="Run the stores and the service on this machine, data in one folder.")
app.command("tideq.cli.serve:serve", help="Run the service against a store given by REDIS_URL.")

keys = cyclopts.App(name="keys", help="Make, list and revoke access keys.")
keys.command("tideq.cli.keys:create", help="Make a key and show it, this once.")
keys.command("tideq.cli.keys:show", name="list", help="List the keys, without their secrets.")
keys.command("tideq.cli.keys:revoke", help="Shut a key out, within a few seconds.")
app.command(keys)


def main() -> None:
    app()
