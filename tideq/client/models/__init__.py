"""Responses of the service as structs."""
