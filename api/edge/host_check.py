"""Who an open service listens to: programs of this machine, and no web page that one of them happens to show.

Without keys, being on loopback is all the protection there is, and a browser breaks it: any page may send requests to
127.0.0.1, and one whose name its owner makes resolve to 127.0.0.1 may read the answers too. So an open service refuses
to be addressed by a name that somebody could own, and whoever says to come from a page of another place.

Not promised against who controls the names of the local network: names without a dot are taken for one's own.
"""

import functools
import ipaddress
from urllib.parse import urlsplit

from tideq.api.edge.problems import Forbidden


def check_host_and_origin(host: str, origin: str, allowed_hosts: tuple[str, ...]) -> None:
    """`host` and `origin` as the headers say; both empty where a program does not send them."""
    if host and not is_local_name(host, allowed_hosts):
        raise Forbidden(f"an open service is not asked as {host[:100]!r}; TIDEQ_ALLOWED_HOSTS names others it may be")
    if origin and not _is_same_place(origin, host, allowed_hosts):
        raise Forbidden("an open service takes no requests from pages of other places")


@functools.lru_cache(maxsize=1_024)
def is_local_name(host: str, allowed_hosts: tuple[str, ...]) -> bool:
    """An address, a name that no registry gives away, or one the operator named."""
    name = _name(host)
    if name in allowed_hosts or name.endswith(".localhost"):
        return True
    return bool(name) and ("." not in name or _is_address(name))


def _is_same_place(origin: str, host: str, allowed_hosts: tuple[str, ...]) -> bool:
    """A proxy may have changed the name it asks by: then the operator has named the one people see."""
    place = urlsplit(origin).netloc.lower()
    return bool(place) and (place == host.lower() or _name(place) in allowed_hosts)


def _name(host: str) -> str:
    """Without the port; a final dot means the same name."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower().rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
