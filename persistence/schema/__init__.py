"""The schema: migrations, and table partitions that are made and dropped."""
