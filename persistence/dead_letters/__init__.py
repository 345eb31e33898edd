"""Dead letters: lists, patterns, alerts and replays."""
