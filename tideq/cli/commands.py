"""The commands of `tideq`. Each verb imports what it needs when it runs: `tideq --help` stays quick."""

import os
import sys

import cyclopts

RUN = cyclopts.Group("Run it", sort_key=1)
USE = cyclopts.Group("Use it", sort_key=2)
KEEP = cyclopts.Group("Look after it", sort_key=3)

app = cyclopts.App(name="tideq", help="A task queue over HTTP: one sorted set, leases that come back by themselves.")
app.command("tideq.cli.up:up", help="Run the stores and the service on this machine, data in one folder.", group=RUN)
app.command("tideq.cli.serve:serve", help="Run the service against a store given by REDIS_URL.", group=RUN)
app.command("tideq.cli.worker:worker", help="Run an application's handlers.", group=RUN)
app.command("tideq.cli.monitor:monitor", help="Housekeeping: recovery, probes, partitions.", group=RUN)
app.command("tideq.cli.history:replicate", help="Copy what happens in the queue to history in PostgreSQL.", group=RUN)
app.command("tideq.cli.history:migrate", help="Bring the database's schema up to date.", group=KEEP)
app.command("tideq.cli.history:rebuild", help="Fill an empty store from history.", group=KEEP)
app.command("tideq.cli.history:reconcile", help="Mend a store that lost writes.", group=KEEP)
app.command("tideq.cli.history:prune", help="Drop the oldest partitions of history.", group=KEEP)
parked = cyclopts.App(name="parked", help="Events that history could not take: try again, or give up.", group=KEEP)
parked.command("tideq.cli.parked:show_list", name="list", help="List tasks with parked events.")
parked.command("tideq.cli.parked:retry", help="Write parked events after all.")
parked.command("tideq.cli.parked:discard", help="Give parked events up.")
app.command(parked)

app.command("tideq.cli.openapi:openapi", help="Print the OpenAPI document of the HTTP API.", group=KEEP)
app.command("tideq.cli.completion:completion", help="Let your shell complete commands and options.", group=KEEP)

app.command("tideq.cli.top:top", help="Watch the service, live.", group=USE)
app.command("tideq.cli.bench:bench", help="Measure how much a service does, and how soon.", group=USE)
app.command("tideq.cli.smoke:smoke", help="Send one task all the way round, to see that a service works.", group=KEEP)
app.command("tideq.cli.doctor:doctor", help="Check everything that newcomers get wrong.", group=KEEP)
app.command("tideq.cli.submit:submit", help="Hand in a task, or many.", group=USE)

tasks = cyclopts.App(name="tasks", help="Look at tasks, call them off, run them again, watch them.", group=USE)
tasks.command("tideq.cli.tasks:show_list", name="list", help="List tasks by any conditions together.")
tasks.command("tideq.cli.tasks:get", help="Show one task.")
tasks.command("tideq.cli.tasks:explain", help="Say why a task is where it is.")
tasks.command("tideq.cli.tasks:cancel", help="Call tasks off.")
tasks.command("tideq.cli.tasks:retry", help="Run failed, dead or cancelled tasks again.")
tasks.command("tideq.cli.tasks:watch", help="Follow a task until it is finished.")
app.command(tasks)

dlq = cyclopts.App(name="dlq", help="Dead letters: look at them, send them back.", group=USE)
dlq.command("tideq.cli.dlq:show_list", name="list", help="List dead letters.")
dlq.command("tideq.cli.dlq:patterns", help="Group dead letters by how they died.")
dlq.command("tideq.cli.dlq:replay", help="Send dead letters back to the queue.")
app.command(dlq)

workers = cyclopts.App(name="workers", help="The fleet.", group=USE)
workers.command("tideq.cli.workers:show_list", name="list", help="List the workers.")
workers.command("tideq.cli.workers:show_worker", name="show", help="Show one worker.")
workers.command("tideq.cli.workers:drain", help="Give workers nothing new.")
app.command(workers)

queue = cyclopts.App(name="queue", help="The queue as a whole.", group=USE)
queue.command("tideq.cli.queue:stats", help="Show how the queue does.")
queue.command("tideq.cli.queue:pause", help="Hand out nothing more.")
queue.command("tideq.cli.queue:resume", help="Hand out again.")
queue.command("tideq.cli.queue:limits", help="Show or set limits.")
app.command(queue)

context = cyclopts.App(name="context", help="Services by name, so that no command needs a URL and a key.", group=KEEP)
context.command("tideq.cli.context:add", help="Remember a service under a name.")
context.command("tideq.cli.context:use", help="Talk to this service from now on.")
context.command("tideq.cli.context:show_list", name="list", help="List the contexts.")
context.command("tideq.cli.context:show_context", name="show", help="Show one context, or the one in use.")
context.command("tideq.cli.context:remove", help="Forget a context.")
app.command(context)

keys = cyclopts.App(name="keys", help="Make, list and revoke access keys.", group=KEEP)
keys.command("tideq.cli.keys:create", help="Make a key and show it, this once.")
keys.command("tideq.cli.keys:adopt", help="Let keys in that were made elsewhere.")
keys.command("tideq.cli.keys:allow", help="Say as which clients a key may submit.")
keys.command("tideq.cli.keys:show", name="list", help="List the keys, without their secrets.")
keys.command("tideq.cli.keys:revoke", help="Shut a key out, within a few seconds.")
app.command(keys)


def run() -> None:
    try:
        app(exit_on_error=False)
    except cyclopts.CycloptsError:
        sys.exit(2)
    except BrokenPipeError:
        # Python would complain once more when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
