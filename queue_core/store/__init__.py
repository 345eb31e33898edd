"""The Redis or Valkey server: connections, server identity, and its data besides tasks."""
