"""HTTP handlers, one file per resource. A handler decodes, calls one verb of the queue or history, and encodes."""
