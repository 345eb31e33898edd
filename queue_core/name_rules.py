"""The form of names: of task types, capabilities, workers, clients, priorities and queues.

Names become parts of keys, of lines that scripts parse and of metrics' labels, so they contain no separator.
"""

import re

NAME_FORM = "[a-zA-Z0-9][a-zA-Z0-9_.-]{0,63}"
NAME = re.compile(NAME_FORM)
QUEUE_NAME_FORM = "[a-zA-Z0-9][a-zA-Z0-9_.-]{0,49}"
"""Shorter, because it is part of the names of keys, channels, schemas and containers."""
QUEUE_NAME = re.compile(QUEUE_NAME_FORM)
