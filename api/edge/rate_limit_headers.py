"""The RateLimit headers of draft-ietf-httpapi-ratelimit-headers: a client's token bucket after its submission.

`q` tasks may be submitted at once and the bucket refills within `w` seconds; `r` are left, and in `t` seconds it is
full. Only submissions carry the headers, and only where clients have a rate limit; a refusal by another limit does not.
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
    """Rounded up: a client that waits this long finds what the header promised."""
    return math.ceil(milliseconds / 1000)
