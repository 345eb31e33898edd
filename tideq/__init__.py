"""TideQ: a task queue over HTTP. What people import and type starts here."""
