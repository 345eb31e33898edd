"""The Redis or Valkey server itself: connections, which server it is, what it holds besides tasks."""
