"""What a client is told, as structs."""
