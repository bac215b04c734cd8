"""Where a task's servers should listen: at the address by which the others know its node, and at no other."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from collections.abc import Iterable
from typing import Optional

import attrs

_SIOCGIFADDR = 0x8915  # netdevice(7): the first IPv4 address of an interface
_NAME_BYTES = 15  # of an interface, at most
_ADDRESS = slice(20, 24)  # in the ifreq that is answered


@attrs.frozen
class OwnAddress:
    """An address that this container has itself."""

    address: str  # numeric
    interface: str  # that has it; empty: none has it as its first one, or it is IPv6


def own_address(host: str, others: Iterable[str]) -> Optional[OwnAddress]:
    """The one address of ``host``, by which ``others``, the hosts of the job's tasks, know this node. Asks DNS.

    None where there is not one that all of them can reach: the name has several or none, it means the loopback here
    and some of the others are elsewhere, or the container has a network of its own. Servers listen everywhere then.
    """
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return None
    if len(found) != 1:
        return None
    address = found.pop()
    is_loopback = ipaddress.ip_address(address.partition("%")[0]).is_loopback
    if (is_loopback and any(other not in ("", host) for other in others)) or not _is_here(address):
        return None
    return OwnAddress(address, _interface(address, is_loopback=is_loopback))


def address_in_image(node: str) -> str:
    """By which the other tasks reach a container in an image on ``node``. Asks DNS.

    That is the node's where the container shares its network. One with a network of its own is reached by its own
    address there, the one that its host name stands for: YARN and Docker give each such container a name.
    """
    try:
        of_node = {str(entry[4][0]) for entry in socket.getaddrinfo(node, None, type=socket.SOCK_STREAM)}
        own = socket.gethostbyname(socket.gethostname())
    except OSError:
        return node
    if any(map(_is_here, of_node)) or ipaddress.ip_address(own).is_loopback or not _is_here(own):
        return node
    return own


def _is_here(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def _interface(address: str, *, is_loopback: bool) -> str:
    """Every address of 127.0.0.0/8 is the loopback's, which lists one."""
    for _, name in socket.if_nameindex():
        first = _first_address(name)
        if first == address or (is_loopback and first.startswith("127.")):
            return name
    return ""


def _first_address(interface: str) -> str:
    """Its first IPv4 address; empty: it has none."""
    asked = struct.pack("256s", interface.encode()[:_NAME_BYTES])
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            return socket.inet_ntoa(fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, asked)[_ADDRESS])
    except OSError:
        return ""
