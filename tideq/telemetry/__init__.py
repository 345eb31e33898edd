"""Traces on their way out: what is sampled, how spans are written as OTLP, and who sends them."""
