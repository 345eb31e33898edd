"""Metrics of this process, of its siblings, of the queue; as Prometheus reads them."""
