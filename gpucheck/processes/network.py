"""Where processes of several hosts meet, and which network interface leads there."""

import errno
import fcntl
import socket
import struct
from typing import NamedTuple

SIOCGIFADDR = 0x8915  # <linux/sockios.h>


class Place(NamedTuple):
    """An address of one of the hosts. interface: of this host, towards that address; None if unknown."""

    host: str
    port: int
    interface: str | None


def meeting_place(option: str, text: str, *, listens: bool) -> Place:
    """``HOST:PORT`` or ``[IPV6]:PORT``, as the option of that name gives it. Raises ValueError with what is wrong.

    listens: whether it is this host that listens there; then the port must be free, which is tried.
    """
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or not 0 < int(port) < 1 << 16:
        raise ValueError(f"{option} {text}: expected HOST:PORT of the first host, for example node01:29500.")
    host = host.removeprefix("[").removesuffix("]")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise ValueError(f"{option} {text}: {host} has no address here: {error.strerror}.") from error
    if listens:
        _try_port(family, address, f"{option} {text}")
    return Place(host, int(port), interface_towards(family, address))


def _try_port(family: int, address: tuple[object, ...], words: str) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                why = "the port is in use: choose another, the same on every host"
            elif error.errno == errno.EADDRNOTAVAIL:
                why = "this is host 0, and the address is not one of its own"
            else:
                why = f"cannot listen there: {error.strerror}"
            raise ValueError(f"{words}: {why}.") from error


def interface_towards(family: int, address: tuple[object, ...]) -> str | None:
    """Return the interface of this host with the route to that address; None if unknown.

    Without it gloo takes the address of the host's own name, which is 127.0.1.1 on many hosts.
    """
    if family != socket.AF_INET:
        return None
    with socket.socket(family, socket.SOCK_DGRAM) as towards:
        try:
            towards.connect(address)
        except OSError:  # no route leads there; the connection attempt reports it
            return None
        own = towards.getsockname()[0]
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(towards, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # an interface without an address
                continue
            if socket.inet_ntoa(answer[20:24]) == own:
                return name
    return None
