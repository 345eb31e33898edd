"""Exports traces: sampling, encoding of spans as OTLP, and sending."""
