"""From a record to a task: by place, which is why the places are compared here."""

from tideq.queue_core.scripts.record import NAMES
from tideq.queue_core.scripts.task_view import task_of


def test_fields_are_taken_by_the_names_and_in_the_order_of_the_record() -> None:
    code = task_of.__code__
    taken = code.co_varnames[code.co_argcount : code.co_argcount + len(NAMES)]

    assert tuple(name.removeprefix("_") for name in taken) == NAMES
