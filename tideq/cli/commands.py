"""The commands of `tideq`. Each command's module is imported when it runs, so that `tideq --help` stays quick."""

import os
import sys
from typing import Literal

import cyclopts

from tideq.cli.output import print_line

RUN = cyclopts.Group("Run it", sort_key=1)
USE = cyclopts.Group("Use it", sort_key=2)
KEEP = cyclopts.Group("Look after it", sort_key=3)

app = cyclopts.App(name="tideq", help="A task queue over HTTP: claims are leases, and lost tasks return by themselves.")
app.command("tideq.cli.up:up", help="Run the stores and the service on this machine, data in one folder.", group=RUN)
app.command("tideq.cli.serve:serve", help="Run the service against a store given by REDIS_URL.", group=RUN)
app.command("tideq.cli.worker:worker", help="Run an application's handlers.", group=RUN)
app.command("tideq.cli.monitor:monitor", help="Run the background duties: recovery, probes, partitions.", group=RUN)
app.command("tideq.cli.history:replicate", help="Copy the events of the queue to history in PostgreSQL.", group=RUN)
app.command("tideq.cli.history:migrate", help="Bring the database's schema up to date.", group=KEEP)
app.command("tideq.cli.history:rebuild", help="Fill an empty store from history.", group=KEEP)
app.command("tideq.cli.history:reconcile", help="Repair a store that lost writes.", group=KEEP)
app.command("tideq.cli.history:prune", help="Drop the oldest partitions of history.", group=KEEP)
parked = cyclopts.App(name="parked", help="Events that history refused: write them again, or discard them.", group=KEEP)
parked.command("tideq.cli.parked:show_list", name="list", help="List tasks with parked events.")
parked.command("tideq.cli.parked:retry", help="Write parked events again.")
parked.command("tideq.cli.parked:discard", help="Discard parked events.")
app.command(parked)

app.command("tideq.cli.openapi:openapi", help="Print the OpenAPI document of the HTTP API.", group=KEEP)


@app.command(help="Let your shell complete commands and options.", group=KEEP)
def completion(shell: Literal["bash", "zsh", "fish"]) -> None:
    """Print the completion script: put `source <(tideq completion bash)` into your ~/.bashrc.

    Parameters
    ----------
    shell
        The shell to print it for.
    """
    print_line(app.generate_completion(shell=shell))


app.command("tideq.cli.top:top", help="Watch the service live.", group=USE)
app.command("tideq.cli.bench:bench", help="Measure throughput and latency of a service.", group=USE)
app.command("tideq.cli.smoke:smoke", help="Run one task from end to end, to check that a service works.", group=KEEP)
app.command("tideq.cli.doctor:doctor", help="Check the machine, the service and its stores.", group=KEEP)
app.command("tideq.cli.submit:submit", help="Submit a task, or many.", group=USE)

tasks = cyclopts.App(name="tasks", help="List, cancel, retry and watch tasks.", group=USE)
tasks.command("tideq.cli.tasks:show_list", name="list", help="List tasks that meet all given conditions.")
tasks.command("tideq.cli.tasks:get", help="Show one task.")
tasks.command("tideq.cli.tasks:explain", help="Explain why a task is not running yet.")
tasks.command("tideq.cli.tasks:cancel", help="Cancel tasks.")
tasks.command("tideq.cli.tasks:retry", help="Run failed, dead or cancelled tasks again.")
tasks.command("tideq.cli.tasks:watch", help="Follow a task until it is finished.")
app.command(tasks)

dlq = cyclopts.App(name="dlq", help="List and replay dead letters.", group=USE)
dlq.command("tideq.cli.dlq:show_list", name="list", help="List dead letters.")
dlq.command("tideq.cli.dlq:patterns", help="Group dead letters by type, reason and error.")
dlq.command("tideq.cli.dlq:replay", help="Send dead letters back to the queue.")
app.command(dlq)

workers = cyclopts.App(name="workers", help="List, show and drain workers.", group=USE)
workers.command("tideq.cli.workers:show_list", name="list", help="List the workers.")
workers.command("tideq.cli.workers:show_worker", name="show", help="Show one worker.")
workers.command("tideq.cli.workers:drain", help="Give workers no new tasks.")
app.command(workers)

queue = cyclopts.App(name="queue", help="Show, pause and limit the queue.", group=USE)
queue.command("tideq.cli.queue:stats", help="Show depth, ages, workers and throughput.")
queue.command("tideq.cli.queue:pause", help="Stop handing out tasks.")
queue.command("tideq.cli.queue:resume", help="Hand out tasks again.")
queue.command("tideq.cli.queue:limits", help="Show or set limits.")
app.command(queue)

context = cyclopts.App(name="context", help="Services by name, so that no command needs a URL and a key.", group=KEEP)
context.command("tideq.cli.context:add", help="Store the URL and the key of a service under a name.")
context.command("tideq.cli.context:use", help="Make a context the current one.")
context.command("tideq.cli.context:show_list", name="list", help="List the contexts.")
context.command("tideq.cli.context:show_context", name="show", help="Show one context, or the current one.")
context.command("tideq.cli.context:remove", help="Remove a context.")
app.command(context)

keys = cyclopts.App(name="keys", help="Create, list and revoke access keys.", group=KEEP)
keys.command("tideq.cli.keys:create", help="Create a key and print it; it cannot be shown again.")
keys.command("tideq.cli.keys:adopt", help="Register keys that were created elsewhere.")
keys.command("tideq.cli.keys:allow", help="Set the clients a key may submit as.")
keys.command("tideq.cli.keys:show", name="list", help="List the keys, without their secrets.")
keys.command("tideq.cli.keys:revoke", help="Revoke a key, within a few seconds.")
app.command(keys)


def run() -> None:
    try:
        app(exit_on_error=False)
    except cyclopts.CycloptsError:
        sys.exit(2)
    except BrokenPipeError:
        # Python would report the error again when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
