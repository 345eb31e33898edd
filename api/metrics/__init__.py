"""Metrics of this process, of the other processes on its port and of the queue, in Prometheus's format."""
