"""The `tideq` command. Each verb imports what it needs when it runs: `tideq --help` stays quick."""

import cyclopts

app = cyclopts.App(name="tideq", help="A task queue over HTTP: one sorted set, leases that come back by themselves.")
app.command("tideq.cli.up:up", help="Run the stores on this machine, with their data in one folder.")


def main() -> None:
    app()
