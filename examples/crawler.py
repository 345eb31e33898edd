"""A crawler with an async handler and a rate limit, which visits each page once.

    python crawler.py

It starts a small web site to crawl, and a worker inside its own process; the service runs elsewhere.
"""

import http.server
import random
import re
import threading
import uuid
from typing import TypedDict
from urllib.parse import urljoin

import httpx

import tideq
from tideq import AsyncClient, Client, TaskContext, tq
from tideq.client import NewTask

PAGES = 40
LINK = re.compile(r'href="([^"]+)"')


class Page(TypedDict):
    url: str
    crawl: str
    """The id of the crawl; another crawl visits every page again."""


async def crawl(page: Page, ctx: TaskContext) -> list[str]:
    """Submits the linked pages and returns their task ids. For a page submitted before, it is the existing task's."""
    async with httpx.AsyncClient(timeout=10) as web, AsyncClient() as client:
        answer = await web.get(page["url"])
        answer.raise_for_status()  # an exception fails the attempt, and the task is retried later
        links = [urljoin(page["url"], link) for link in LINK.findall(answer.text)]
        ctx.progress(50, f"{len(links)} links")
        found = await client.submit_many(visit(Page(url=link, crawl=page["crawl"])) for link in links)
        return [each.task_id for each in found]


def visit(page: Page) -> NewTask:
    """The idempotency key identifies the page, so a second submission returns the first task."""
    return NewTask("crawl", page, max_retries=3, idempotency_key=f"{page['crawl']} {page['url']}")


# Eight at a time and fifty a second in this process. `client.queue.set_limits` limits all workers together.
tq("crawl", Page).set_worker(crawl).set_worker_count(8).set_rate_limit(50)


def main() -> None:
    with Site() as site, Client() as client:
        tideq.start()
        waiting = [client.submit_many([visit(Page(url=f"{site.url}/0", crawl=uuid.uuid4().hex))])[0].task_id]
        seen = set(waiting)
        while waiting:
            done = client.wait(waiting.pop(), timeout_seconds=60)
            new = set(done.result or []) - seen
            seen |= new
            waiting += new
        tideq.stop()
        print(f"{len(seen)} tasks for {len(site.visits)} pages, {sum(site.visits.values())} visits")


class Site:
    """Pages that link to each other at random; all can be reached from the first."""

    def __init__(self) -> None:
        self.visits: dict[str, int] = {}
        site = self

        class Answer(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.visits[self.path] = site.visits.get(self.path, 0) + 1
                number = int(self.path[1:])
                links = {(number + 1) % PAGES, *random.choices(range(PAGES), k=3)}
                body = "".join(f'<a href="/{link}">{link}</a>' for link in links).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "Site":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


if __name__ == "__main__":
    main()
