"""Whether somebody wants requests to go through a proxy. Only httpx knows how to talk to one."""

import sys
from collections.abc import Mapping
from urllib.parse import urlsplit


def has_proxy(url: str, environ: Mapping[str, str]) -> bool:
    """Where it is not plain that NO_PROXY means this host, yes: httpx reads it, too, and has the last word."""
    proxies = _proxies(environ)
    parts = urlsplit(url)
    if not (proxies.get(parts.scheme) or proxies.get("all")):
        return False
    host = parts.hostname or ""
    return not any(_means(entry.strip().lower(), host) for entry in proxies.get("no", "").split(","))


def _proxies(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Importing urllib.request takes longer than a client's first call."""
    knows_more = sys.platform in ("darwin", "win32")  # in its registry, or its settings
    if not knows_more and not any(name.lower().endswith("_proxy") for name in environ):
        return {}
    import urllib.request

    return urllib.request.getproxies()


def _means(entry: str, host: str) -> bool:
    return entry in ("*", host) or (bool(entry) and host.endswith(f".{entry.removeprefix('.')}"))
