"""Request and response bodies of the HTTP API.

Fields may be added, never renamed. Times are RFC 3339 in UTC, durations are seconds; `queue_core` uses milliseconds,
and this package converts.
"""
