"""A history of its own for every test, as history's tests have it."""

from tests.history.conftest import database, history_settings, kit, migrated, queue_name, queue_settings

__all__ = ["database", "history_settings", "kit", "migrated", "queue_name", "queue_settings"]
