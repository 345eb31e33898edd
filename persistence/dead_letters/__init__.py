"""What died: lists, patterns, replays."""
