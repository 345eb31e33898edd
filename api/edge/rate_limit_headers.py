"""The RateLimit headers of draft-ietf-httpapi-ratelimit-headers: a client's bucket as its submission left it.

`q` may be submitted at once and is filled again within `w` seconds; `r` of it is left, and in `t` seconds it is full.
Only submissions carry them, and only where clients have a rate limit. What another limit refuses says nothing of them.
"""

import math

from tideq.queue_core.task import RateLimitState


def rate_limit_headers(bucket: RateLimitState | None) -> dict[str, str]:
    if bucket is None:
        return {}
    return {
        "RateLimit-Policy": f'"client";q={bucket.size};w={max(_seconds(bucket.window_ms), 1)}',
        "RateLimit": f'"client";r={bucket.left};t={_seconds(bucket.full_in_ms)}',
    }


def _seconds(milliseconds: int) -> int:
    """Never too few: who comes back then finds what was promised."""
    return math.ceil(milliseconds / 1000)
