"""Checks the address of a probe. A worker names its own address, so it is treated as hostile input.

Only addresses that the operator allows are contacted, only in canonical spelling. A name is resolved once: the probe
goes to the address that was checked. Concurrent probes of one name share one look-up.
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
"""The last label begins with a letter: `2130706433`, `0x7f.1` and `127.1` are other spellings of addresses."""


RESOLVE_SECONDS = 2.0
MAX_RESOLVING = 64
"""Concurrent look-ups: a resolver gives up after half a minute and cannot be stopped earlier."""

_resolving: dict[str, "Future[list[Any]]"] = {}
"""Running look-ups by name. Their futures belong to no event loop, so that every loop can wait for them."""


class NotAllowed(Exception):
    """The address may not be probed; the message has the reason."""


class NotResolved(NotAllowed):
    """The name has no address at present; a later look-up may succeed."""


async def allowed_address(host: str, networks: Sequence[Network]) -> Address:
    """Returns the address to connect to. Raises NotAllowed if any address of the name is not allowed."""
    addresses = [_literal(host)] if _is_literal(host) else await _resolved(host)
    for address in addresses:
        check(address, networks)
    return addresses[0]


def check(address: Address, networks: Sequence[Network]) -> None:
    if isinstance(address, ipaddress.IPv6Address) and (address.ipv4_mapped or address.sixtofour or address.teredo):
        raise NotAllowed(f"{address} embeds an IPv4 address")
    if address.is_unspecified or address.is_multicast or address.is_link_local or address.is_reserved:
        raise NotAllowed(f"{address} is not the address of a single host")
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
        raise NotAllowed(f"{host} has an interface suffix, which is not allowed")
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
    """Runs in its own daemon thread: a slow resolver blocks neither the loop's thread pool nor the process exit.

    Calls during a look-up of the same name share its result; a caller that gives up does not end it for the others.
    """
    if host in _resolving:
        return _resolving[host]
    if len(_resolving) >= MAX_RESOLVING:
        raise OSError("earlier look-ups have not finished yet")
    found: Future[list[Any]] = Future()
    # A running future cannot be cancelled: a caller that gives up only stops waiting.
    found.set_running_or_notify_cancel()
    _resolving[host] = found
    try:
        threading.Thread(target=_resolve, args=(host, found), name=f"resolve {host}", daemon=True).start()
    except RuntimeError as error:
        del _resolving[host]
        raise OSError(str(error)) from error
    return found


def _resolve(host: str, found: "Future[list[Any]]") -> None:
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except Exception as error:
        # Also unexpected errors: otherwise the name would stay in _resolving for ever.
        _resolving.pop(host, None)
        found.set_exception(OSError(str(error)))
    else:
        _resolving.pop(host, None)
        found.set_result(addresses)
