"""What history is asked for: one task, lists of them, how far behind it is."""
