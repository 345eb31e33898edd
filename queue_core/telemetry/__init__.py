"""Names of metrics and spans, and the shapes in which they travel."""
