"""The outbox stream and its readers: history, event streams, the monitors."""
