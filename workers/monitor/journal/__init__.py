"""What happened, told once: transitions read off the outbox and handed to listeners that log, trace and count them."""
