"""What may be called what: one form for the names of task types, capabilities, workers, clients, priorities and queues.

Names become parts of keys, of lines that scripts read and of metrics' labels: nothing in one may end it early.
"""

import re

NAME_FORM = "[a-zA-Z0-9][a-zA-Z0-9_.-]{0,63}"
NAME = re.compile(NAME_FORM)
QUEUE_NAME_FORM = "[a-zA-Z0-9][a-zA-Z0-9_.-]{0,49}"
"""Shorter: it is a part of the names of keys, channels, schemas and containers."""
QUEUE_NAME = re.compile(QUEUE_NAME_FORM)
