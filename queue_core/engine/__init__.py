"""The engine: the queue's verbs on a Redis or Valkey store. The only place that imports `redis`."""
