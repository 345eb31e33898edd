"""Whether somebody wants requests to go through a proxy. Only httpx knows how to talk to one."""

import sys
from collections.abc import Mapping
from urllib.parse import urlsplit

SUFFIX = "_proxy"


def has_proxy(url: str, environ: Mapping[str, str]) -> bool:
    """Where it is not plain that NO_PROXY means this host, yes: httpx reads it, too, and has the last word."""
    proxies = proxies_in(environ) or _proxies_of_the_system()
    parts = urlsplit(url)
    if not (proxies.get(parts.scheme) or proxies.get("all")):
        return False
    host = parts.hostname or ""
    return not any(_means(entry.strip().lower(), host) for entry in proxies.get("no", "").split(","))


def proxies_in(environ: Mapping[str, str]) -> dict[str, str]:
    """By scheme, as urllib.request reads them, which takes longer to import than a client's first call.

    Lower case has the last word, also where it is empty. To programs it starts a web server hands the header `Proxy` of
    a request on as HTTP_PROXY: there that is not believed.
    """
    found = {name.lower(): value for name, value in environ.items() if name.lower().endswith(SUFFIX) and value}
    if "REQUEST_METHOD" in environ:
        found.pop("http_proxy", None)
    found |= {name.lower(): value for name, value in environ.items() if name.endswith(SUFFIX)}
    return {name.removesuffix(SUFFIX): value for name, value in found.items() if value}


def _proxies_of_the_system() -> dict[str, str]:
    """In its registry, or its settings."""
    if sys.platform not in ("darwin", "win32"):
        return {}
    import urllib.request

    return urllib.request.getproxies()


def _means(entry: str, host: str) -> bool:
    return entry in ("*", host) or (bool(entry) and host.endswith(f".{entry.removeprefix('.')}"))
