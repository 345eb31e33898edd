"""A queue over several partitions, with the same operations as a single partition."""
