"""Names of metrics and spans, trace contexts, and the span types that processes share."""
