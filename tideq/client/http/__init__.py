"""Requests to a service over HTTP, for the client and for workers: aiohttp in asyncio's loops, urllib3 elsewhere."""
