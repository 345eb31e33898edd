"""What the tables are and how they change: migrations, and partitions made and dropped."""
