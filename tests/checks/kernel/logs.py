"""Lines of a kernel log and the judgement of them."""

from gpucheck.checks.kernel import log as check
from gpucheck.model import PciDevice
from tests.checks.judging import judge
from tests.fakes import facts, kernel_log

PORT = "0000:3a:01.0"
GPU = PciDevice(bus_id="0000:3b:00.0", vendor_id="10de", device_id="2330", class_id="030200", path=(PORT,))
XID = "NVRM: Xid (PCI:0000:3b:00): "


def judged(*lines):
    return judge(check, facts(kernel_log=kernel_log(*lines), pci=(GPU,)))
