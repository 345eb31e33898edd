"""How application code speaks of tasks: the decorator, the chainable form, and workers inside its own process."""
