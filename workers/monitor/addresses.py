"""Where a probe may go. A worker names its own address, so it is treated like any hostile input.

Only what the operator allows is contacted, only by its canonical spelling, and a name is resolved once: the probe then
goes to the very address that was checked.
"""

import asyncio
import contextlib
import ipaddress
import re
import socket
import threading
from collections.abc import Sequence
from typing import Any

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
HOST_NAME = re.compile(rf"(?=.{{1,253}}\Z)(?:{LABEL}\.)*(?=[a-z]){LABEL}", re.IGNORECASE)
"""Its last label begins with a letter: `2130706433`, `0x7f.1` and `127.1` are other spellings of addresses."""


RESOLVE_SECONDS = 2.0
MAX_RESOLVING = 64
"""Names that may be under way at once: a resolver gives up after half a minute, and nothing ends it sooner."""

_resolving: set[str] = set()


class NotAllowed(Exception):
    """The address may not be probed; the message says why."""


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
            found = await _look_up(host)
    except TimeoutError:
        raise NotAllowed(f"{host} was not resolved within {RESOLVE_SECONDS:g} seconds") from None
    except OSError as error:
        raise NotAllowed(f"{host} cannot be resolved: {error}") from error
    return [ipaddress.ip_address(str(entry[4][0])) for entry in found]


async def _look_up(host: str) -> list[Any]:
    """In a thread of its own, which the loop's shared ones do not wait behind, nor the process at its end."""
    if host in _resolving or len(_resolving) >= MAX_RESOLVING:
        raise OSError("the resolver has not answered earlier questions yet")
    loop = asyncio.get_running_loop()
    found: asyncio.Future[list[Any]] = loop.create_future()

    def answer(addresses: list[Any], error: OSError | None) -> None:
        if not found.done():
            found.set_result(addresses) if error is None else found.set_exception(error)

    def ask() -> None:
        addresses, failure = list[Any](), None
        try:
            addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            failure = OSError(str(error))
        finally:
            _resolving.discard(host)
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(answer, addresses, failure)

    _resolving.add(host)
    threading.Thread(target=ask, name=f"resolve {host}", daemon=True).start()
    return await found
