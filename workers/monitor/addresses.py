"""Where a probe may go. A worker names its own address, so it is treated like any hostile input.

Only what the operator allows is contacted, only by its canonical spelling, and a name is resolved once: the probe then
goes to the very address that was checked. Probes of one name at one time share one question to the resolver.
"""

import asyncio
import ipaddress
import re
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
HOST_NAME = re.compile(rf"(?=.{{1,253}}\Z)(?:{LABEL}\.)*(?=[a-z]){LABEL}", re.IGNORECASE)
"""Its last label begins with a letter: `2130706433`, `0x7f.1` and `127.1` are other spellings of addresses."""


RESOLVE_SECONDS = 2.0
MAX_RESOLVING = 64
"""Names that may be under way at once: a resolver gives up after half a minute, and nothing ends it sooner."""

_resolving: dict[str, "Future[list[Any]]"] = {}
"""What the resolver is asked just now, by name. It never waits for a loop, so every loop may wait for it."""


class NotAllowed(Exception):
    """The address may not be probed; the message says why."""


class NotResolved(NotAllowed):
    """Nobody can say just now which address the name has; a moment later somebody may."""


async def allowed_address(host: str, networks: Sequence[Network]) -> Address:
    """The one address to connect to. A name all of whose addresses are not allowed is refused as a whole."""
    addresses = [_literal(host)] if _is_literal(host) else await _resolved(host)
    for address in addresses:
        check(address, networks)
    return addresses[0]


def check(address: Address, networks: Sequence[Network]) -> None:
    if isinstance(address, ipaddress.IPv6Address) and (address.ipv4_mapped or address.sixtofour or address.teredo):
        raise NotAllowed(f"{address} hides another address")
    if address.is_unspecified or address.is_multicast or address.is_link_local or address.is_reserved:
        raise NotAllowed(f"{address} is no host's address")
    if not any(address in network for network in networks):
        raise NotAllowed(f"{address} is not in TIDEQ_PROBE_ALLOWED_CIDRS")


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _literal(host: str) -> Address:
    address = ipaddress.ip_address(host)
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id:
        raise NotAllowed(f"{host} names an interface")
    return address


async def _resolved(host: str) -> list[Address]:
    if not HOST_NAME.fullmatch(host):
        raise NotAllowed(f"{host!r} is neither an address nor a host name")
    try:
        async with asyncio.timeout(RESOLVE_SECONDS):
            found = await asyncio.wrap_future(_look_up(host))
    except TimeoutError:
        raise NotResolved(f"{host} was not resolved within {RESOLVE_SECONDS:g} seconds") from None
    except OSError as error:
        raise NotResolved(f"{host} cannot be resolved: {error}") from error
    return [ipaddress.ip_address(str(entry[4][0])) for entry in found]


def _look_up(host: str) -> "Future[list[Any]]":
    """In a thread of its own, which the loop's shared ones do not wait behind, nor the process at its end.

    Whoever asks while it is under way waits for the same answer; one that gives up leaves it to the others.
    """
    if host in _resolving:
        return _resolving[host]
    if len(_resolving) >= MAX_RESOLVING:
        raise OSError("the resolver has not answered earlier questions yet")
    found: Future[list[Any]] = Future()
    # From here on it cannot be cancelled: a caller that gives up only stops waiting.
    found.set_running_or_notify_cancel()
    _resolving[host] = found
    try:
        threading.Thread(target=_ask, args=(host, found), name=f"resolve {host}", daemon=True).start()
    except RuntimeError as error:
        del _resolving[host]
        raise OSError(str(error)) from error
    return found


def _ask(host: str, found: "Future[list[Any]]") -> None:
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except Exception as error:
        # Also what the resolver never raises by its own account: nobody else would free the name.
        _resolving.pop(host, None)
        found.set_exception(OSError(str(error)))
    else:
        _resolving.pop(host, None)
        found.set_result(addresses)
