"""The API for application code: the decorator, the chainable form, and workers in the application's process."""
