"""Guards a service with authentication off against web pages: cross-site requests and DNS rebinding.

Without keys, loopback is the only protection, and a browser breaks it: any page may send requests to 127.0.0.1, and a
page whose name resolves to 127.0.0.1 may read the responses too. So the service refuses a Host that could be a
registered name, and an Origin of another site.

Limit: no protection against an attacker who controls names of the local network, since a name without a dot counts as
local.
"""

import functools
import ipaddress
from urllib.parse import urlsplit

from tideq.api.edge.problems import Forbidden


def check_host_and_origin(host: str, origin: str, allowed_hosts: tuple[str, ...]) -> None:
    """Raises `Forbidden`. Both values as in the headers, empty where a program does not send them."""
    if host and not is_local_name(host, allowed_hosts):
        raise Forbidden(
            f"Host {host[:100]!r} is not allowed while authentication is off; add it to TIDEQ_ALLOWED_HOSTS"
        )
    if origin and not _is_same_origin(origin, host, allowed_hosts):
        raise Forbidden(
            f"requests from pages of {origin[:100]!r} are not allowed while authentication is off; "
            "add its host to TIDEQ_ALLOWED_HOSTS"
        )


@functools.lru_cache(maxsize=1_024)
def is_local_name(host: str, allowed_hosts: tuple[str, ...]) -> bool:
    """An IP address, a name that cannot be registered, or one the operator allowed."""
    name = _name(host)
    if name in allowed_hosts or name.endswith(".localhost"):
        return True
    return bool(name) and ("." not in name or _is_address(name))


def _is_same_origin(origin: str, host: str, allowed_hosts: tuple[str, ...]) -> bool:
    """A proxy may have rewritten Host: then the operator must allow the public name."""
    netloc = urlsplit(origin).netloc.lower()
    return bool(netloc) and (netloc == host.lower() or _name(netloc) in allowed_hosts)


def _name(host: str) -> str:
    """Without the port and a final dot."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower().rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
