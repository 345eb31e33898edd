"""Where a probe may go. A worker names its own address, so it is treated like any hostile input.

Only what the operator allows is contacted, only by its canonical spelling, and a name is resolved once: the probe then
goes to the very address that was checked.
"""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Sequence

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
HOST_NAME = re.compile(rf"(?=.{{1,253}}\Z)(?:{LABEL}\.)*(?=[a-z]){LABEL}", re.IGNORECASE)
"""Its last label begins with a letter: `2130706433`, `0x7f.1` and `127.1` are other spellings of addresses."""


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
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise NotAllowed(f"{host} cannot be resolved: {error}") from error
    return [ipaddress.ip_address(str(entry[4][0])) for entry in found]
