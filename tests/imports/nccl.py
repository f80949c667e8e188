"""NCCL topology XML as NCCL writes it, for machines made up here: nested pci elements below one cpu a NUMA node."""

from collections.abc import Iterable

GPU, INFINIBAND, SWITCH = "0x030200", "0x020700", "0x060400"
TO_SWITCH, TO_GPU = "0x068000", "0x030200"
MILAN = 'arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="1"'
EMERALD_RAPIDS = 'arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="207"'


def system(*nodes: str) -> str:
    return '<system version="1">\n' + "\n".join(nodes) + "\n</system>\n"


def cpu(numa: int, *inside: str, affinity: str = "0000ffff", kind: str = EMERALD_RAPIDS, host: str = "0x1") -> str:
    return f'<cpu host_hash="{host}" numaid="{numa}" affinity="{affinity}" {kind}>\n' + "\n".join(inside) + "\n</cpu>"


def pci(bus: str, kind: str, *inside: str, speed: str = "32.0 GT/s PCIe", width: int = 16) -> str:
    attributes = f'busid="{bus}" class="{kind}" vendor="0x10de" link_speed="{speed}" link_width="{width}"'
    return f"<pci {attributes}>\n" + "\n".join(inside) + "\n</pci>"


def gpu(bus: str, dev: int, links: Iterable[tuple[str, int, str]] = (), sm: int = 90, rank: int | None = None) -> str:
    nvlinks = "".join(f'<nvlink target="{to}" count="{count}" tclass="{kind}"/>\n' for to, count, kind in links)
    speed = {60: "8.0", 70: "8.0", 80: "16.0"}.get(sm, "32.0")
    inside = f'<gpu dev="{dev}" sm="{sm}" rank="{dev if rank is None else rank}" gdr="1">\n{nvlinks}</gpu>'
    return pci(bus, GPU, inside, speed=f"{speed} GT/s PCIe")


def nic(bus: str, name: str) -> str:
    net = f'<nic><net name="{name}" dev="0" speed="400000" port="1" guid="0x1" maxconn="131072" gdr="1"/></nic>'
    return pci(bus, INFINIBAND, net)


def hgx(count: int = 8, links: int = 18) -> str:
    """Each GPU below a switch of its own with one network card, half of them a socket."""

    def board(n: int) -> str:
        split = ((f"0000:0{s + 5}:00.0", links // 4 + (s < links % 4), TO_SWITCH) for s in range(4))
        both = gpu(f"0000:{n + 1}b:00.0", n, split), nic(f"0000:{n + 1}a:00.0", f"mlx5_{n}")
        return pci(f"0000:{n + 1}8:00.0", SWITCH, *both)

    half = count // 2
    masks = "00000000,0000ffff", "0000ffff,00000000"
    return system(*(cpu(k, *map(board, range(k * half, (k + 1) * half)), affinity=masks[k]) for k in range(2)))


MESH = {
    (0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2, (1, 2): 2, (1, 3): 1, (1, 5): 2, (2, 3): 2,
    (2, 6): 1, (3, 7): 1, (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 2,
}  # fmt: skip


def mesh() -> str:
    """Eight V100: two GPUs below a switch, two switches a socket, one or two links between neighbours."""
    bus = [f"0000:{n + 1}0:00.0" for n in range(8)]

    def links(n: int) -> list[tuple[str, int, str]]:
        return [(bus[b if a == n else a], count, TO_GPU) for (a, b), count in MESH.items() if n in (a, b)]

    pairs = [
        pci(f"0000:0{k + 2}:00.0", SWITCH, *(gpu(bus[n], n, links(n), sm=70) for n in (2 * k, 2 * k + 1)))
        for k in range(4)
    ]
    return system(cpu(0, *pairs[:2]), cpu(1, *pairs[2:], affinity="ffff0000"))
