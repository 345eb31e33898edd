"""Requests and answers over connections of our own: what a client and a worker send again and again, and no more."""
