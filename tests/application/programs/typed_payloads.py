"""000, section 2.2: typed payloads; and 7.3: the interface's usage example."""

from typing import NotRequired, TypedDict

from tideq import tq


# Type-safe payloads
class CrawlPayload(TypedDict):
    url: str
    depth: NotRequired[int]


async def crawl(payload: CrawlPayload) -> str:
    # payload is typed as CrawlPayload
    print("Crawling", payload["url"].upper(), flush=True)
    return payload["url"]


# Initialize
tq.init()

# Setup (chainable)
tq("crawl", CrawlPayload).set_worker(crawl).set_worker_count(3).set_rate_limit(10).set_timeout(300).add(
    {"url": "https://example.com"}
)

# Use (chainable)
tq("crawl").add({"url": "https://example.com/1"}).add({"url": "https://example.com/2"})

tq.start()
input()

# Control
tq.pause()
tq.resume()
tq.stop()
