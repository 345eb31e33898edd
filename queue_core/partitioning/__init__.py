"""One queue over several partitions: the same verbs as one partition has, over all of them."""
