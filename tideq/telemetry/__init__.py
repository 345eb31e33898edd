"""Exports traces with OpenTelemetry's SDK."""
