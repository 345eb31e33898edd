"""The `tideq` command. Each verb imports what it needs when it runs: `tideq --help` stays quick."""

import sys

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

app.command("tideq.cli.submit:submit", help="Hand in a task, or many.")

tasks = cyclopts.App(name="tasks", help="Look at tasks, call them off, run them again, watch them.")
tasks.command("tideq.cli.tasks:show_list", name="list", help="List tasks by any conditions together.")
tasks.command("tideq.cli.tasks:get", help="Show one task.")
tasks.command("tideq.cli.tasks:explain", help="Say why a task is where it is.")
tasks.command("tideq.cli.tasks:cancel", help="Call tasks off.")
tasks.command("tideq.cli.tasks:retry", help="Run failed, dead or cancelled tasks again.")
tasks.command("tideq.cli.tasks:watch", help="Follow a task until it is finished.")
app.command(tasks)

dlq = cyclopts.App(name="dlq", help="Dead letters: look at them, send them back.")
dlq.command("tideq.cli.dlq:show_list", name="list", help="List dead letters.")
dlq.command("tideq.cli.dlq:patterns", help="Group dead letters by how they died.")
dlq.command("tideq.cli.dlq:replay", help="Send dead letters back to the queue.")
app.command(dlq)

workers = cyclopts.App(name="workers", help="The fleet.")
workers.command("tideq.cli.workers:show_list", name="list", help="List the workers.")
workers.command("tideq.cli.workers:drain", help="Give workers nothing new.")
app.command(workers)

queue = cyclopts.App(name="queue", help="The queue as a whole.")
queue.command("tideq.cli.queue:stats", help="Show how the queue does.")
queue.command("tideq.cli.queue:pause", help="Hand out nothing more.")
queue.command("tideq.cli.queue:resume", help="Hand out again.")
queue.command("tideq.cli.queue:limits", help="Show or set limits.")
app.command(queue)

keys = cyclopts.App(name="keys", help="Make, list and revoke access keys.")
keys.command("tideq.cli.keys:create", help="Make a key and show it, this once.")
keys.command("tideq.cli.keys:show", name="list", help="List the keys, without their secrets.")
keys.command("tideq.cli.keys:revoke", help="Shut a key out, within a few seconds.")
app.command(keys)


def main() -> None:
    """What was asked wrongly ends with 2."""
    try:
        app(exit_on_error=False)
    except cyclopts.CycloptsError:
        sys.exit(2)
