"""Which network interface leads to another host, so that ranks of several hosts find each other."""

import fcntl
import socket
import struct

SIOCGIFADDR = 0x8915  # <linux/sockios.h>


def interface_towards(family: int, address: tuple[object, ...]) -> str | None:
    """The interface whose address this host would use towards that one; None where that cannot be told.

    Without it gloo takes the address of the host's own name, which is 127.0.1.1 on many hosts.
    """
    if family != socket.AF_INET:
        return None
    with socket.socket(family, socket.SOCK_DGRAM) as towards:
        try:
            towards.connect(address)
        except OSError:  # no route leads there; whoever connects says so
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
