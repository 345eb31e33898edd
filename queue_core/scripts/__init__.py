"""Lua scripts, the loader that binds their headers, and the one codec of the record."""
