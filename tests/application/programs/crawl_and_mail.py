"""000, section 2.2: example usage, and the global control of workers."""

import os

import httpx

from tideq import tq

WEB = os.environ["WEB"]


# Setup worker
async def crawl(payload: dict[str, str]) -> None:
    print("Crawling", payload["url"], flush=True)
    async with httpx.AsyncClient() as web:
        await web.get(payload["url"])


tq("crawl").set_worker(crawl).set_worker_count(3).set_rate_limit(10).set_timeout(300)

# Enqueue tasks
tq("crawl").add({"url": f"{WEB}/google"})
tq("crawl").add({"url": f"{WEB}/baidu"})

# Can also chain adds
(tq("crawl").add({"url": f"{WEB}/1"}).add({"url": f"{WEB}/2"}).add({"url": f"{WEB}/3"}))


# Different task types, different configs
async def send_email(payload: dict[str, str]) -> None:
    print("Mailing", payload["to"], flush=True)


tq("email").set_worker(send_email).set_worker_count(1).set_rate_limit(5)  # sequential, 5 emails/sec

tq("email").add({"to": "user@example.com", "subject": "Hello"})

tq.start()

# Pause/resume ALL workers
tq.pause()
tq.resume()

# Get global stats
print("Waiting", tq.stats().queue.total_depth >= 0, flush=True)

input()

# Graceful shutdown
tq.stop()
