"""Both kinds of connections under names that differ as those of the two clients do."""

from tideq.client.http.asynchronous import AsyncPool
from tideq.client.http.blocking import Pool

__all__ = ["AsyncPool", "Pool"]
