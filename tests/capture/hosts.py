"""Made-up hosts: trees of sysfs and procfs files, a ``pynvml``, and the texts of tools."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from meshwright.capture.tools import Ran

GEN5 = "32.0 GT/s PCIe"
GEN1 = "2.5 GT/s PCIe"
UUID = bytes.fromhex("5a1e0c6f93b24d1783c4d7e8f9a0b1c2")
CLIQUE = "5a1e0c6f-93b2-4d17-83c4-d7e8f9a0b1c2.7"


class FakeHost:
    """Files under a folder that stands for ``/``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folders: dict[str, Path] = {}
        self.write("sys/bus/pci/devices/", "")
        self.write("sys/class/net/", "")

    def write(self, path: str, text: str) -> None:
        """Write a file, or make a folder where the path ends with a slash."""
        target = self.root / path
        folder = target if path.endswith("/") else target.parent
        folder.mkdir(parents=True, exist_ok=True)
        if not path.endswith("/"):
            target.write_text(text)

    def files(self, **values: object) -> None:
        """Write several small files: underlines of a name are slashes where there are two."""
        for name, value in values.items():
            self.write(name.replace("__", "/"), f"{value}\n")

    def pci(
        self, address: str, below: str, code: str, ids: str = "8086:1234", **values: object
    ) -> None:
        """Add a PCI function below a bridge, or below a host bridge (``pci0000:15``)."""
        parent = self.folders.get(below, self.root / "sys/devices" / below)
        folder = self.folders[address] = parent / address
        folder.mkdir(parents=True)
        vendor, device = ids.split(":")
        given: dict[str, object] = {
            "class": f"0x{code}",
            "vendor": f"0x{vendor}",
            "device": f"0x{device}",
            "subsystem_vendor": f"0x{vendor}",
            "subsystem_device": "0x0001",
            "current_link_speed": GEN5,
            "current_link_width": 16,
            "max_link_speed": GEN5,
            "max_link_width": 16,
            "numa_node": -1,
            **values,
        }
        for name, value in given.items():
            (folder / name).write_text(f"{value}\n")
        self.link(f"sys/bus/pci/devices/{address}", folder)

    def link(self, path: str, target: Path) -> None:
        """Make a relative link, as sysfs has them."""
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(os.path.relpath(target, place.parent))

    def net(self, name: str, pci: str, speed: int = 100_000) -> None:
        """Add a network interface with a MAC address, which a capture must not hold."""
        folder = self.folders[pci] / "net" / name
        folder.mkdir(parents=True)
        (folder / "speed").write_text(f"{speed}\n")
        (folder / "operstate").write_text("up\n")
        (folder / "address").write_text("b8:3f:d2:11:22:33\n")
        (folder / "device").symlink_to("../..")
        self.link(f"sys/class/net/{name}", folder)

    def rdma(self, name: str, pci: str, number: int, **port: str) -> None:
        """Add an RDMA device with one port."""
        folder = self.folders[pci] / "infiniband" / name
        words = {
            "rate": "400 Gb/sec (4X NDR)",
            "state": "4: ACTIVE",
            "phys_state": "5: LinkUp",
            "lid": f"{number + 16:#x}",
            "link_layer": "InfiniBand",
            "gids/0": f"fe80:0000:0000:0000:a088:c203:0000:{number:04x}",
            **port,
        }
        for key, value in words.items():
            target = folder / "ports/1" / key
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(value + "\n")
        (folder / "node_guid").write_text(f"a088:c203:00aa:{number:04x}\n")
        (folder / "node_desc").write_text(f"node7 {name}\n")
        (folder / "board_id").write_text("MT_0000000838\n")
        (folder / "hca_type").write_text("MT4129\n")
        (folder / "fw_ver").write_text("28.39.1002\n")
        (folder / "device").symlink_to("../..")
        self.link(f"sys/class/infiniband/{name}", folder)

    def cpus(self, lists: Sequence[str], flags: str = "fpu sse2") -> None:
        """Add NUMA nodes with these CPU lists, and the files of procfs."""
        for node, cpus in enumerate(lists):
            distances = " ".join("10" if other == node else "21" for other in range(len(lists)))
            self.write(f"sys/devices/system/node/node{node}/cpulist", f"{cpus}\n")
            self.write(f"sys/devices/system/node/node{node}/distance", f"{distances}\n")
        self.write("sys/devices/system/cpu/online", "0-223\n")
        self.write("proc/cpuinfo", f"model name\t: Made Up 9000\nflags\t\t: {flags}\n")
        self.write("proc/sys/kernel/hostname", "node7.cluster.example\n")
        self.write("proc/sys/kernel/osrelease", "6.8.0-made-up\n")


def gpu_address(gpu: int) -> str:
    """Return the PCI address of a GPU of ``dgx``."""
    return f"0000:{0x10 * (gpu // 2 + 1) + 3 + gpu % 2:02x}:00.0"


def nic_address(nic: int) -> str:
    """Return the PCI address of an adapter of ``dgx``."""
    return f"0000:{0x10 * (nic // 2 + 1) + 5 + nic % 2:02x}:00.0"


def dgx(root: Path) -> FakeHost:
    """Return a host of 8 GPUs and 8 NICs under 4 PCIe switches, 4 NVSwitches and 2 sockets.

    Switch s has GPUs and NICs 2s and 2s + 1, and is on NUMA node s // 2. GPUs are idle: gen 1.
    """
    host = FakeHost(root)
    host.cpus(["0-55,112-167", "56-111,168-223"])
    host.files(
        sys__class__dmi__id__sys_vendor="NVIDIA", sys__class__dmi__id__product_name="DGXH100"
    )
    for switch in range(4):
        bus, numa = 0x10 * (switch + 1), switch // 2
        root_port, up = f"0000:{bus:02x}:01.0", f"0000:{bus + 1:02x}:00.0"
        host.pci(root_port, f"pci0000:{bus:02x}", "060400", numa_node=numa)
        host.pci(up, root_port, "060400", "1000:c030", numa_node=numa)
        for place in range(4):
            down = f"0000:{bus + 2:02x}:{place:02x}.0"
            host.pci(down, up, "060400", "1000:c030", numa_node=numa)
            device = 2 * switch + place % 2
            if place < 2:
                host.pci(
                    gpu_address(device),
                    down,
                    "030200",
                    "10de:2330",
                    numa_node=numa,
                    current_link_speed=GEN1,
                )
            else:
                address = nic_address(device)
                host.pci(address, down, "020700", "15b3:1021", numa_node=numa)
                host.rdma(f"mlx5_{device}", address, device)
                host.net(f"ibp{device}", address, 400_000)
        host.pci(f"0000:{bus:02x}:02.0", f"pci0000:{bus:02x}", "010802", "144d:a824")  # NVMe
    for number in range(4):
        port = f"0000:c0:0{number + 1}.0"
        host.pci(port, "pci0000:c0", "060400", numa_node=1)
        host.pci(f"0000:c{number + 1}:00.0", port, "068000", "10de:22a3", numa_node=1)
    return host


def vm(root: Path) -> FakeHost:
    """Return a virtual machine: 4 GPUs and 2 NICs on one flat bus, NUMA unknown."""
    host = FakeHost(root)
    host.cpus(["0-31"], flags="fpu hypervisor")
    host.write("sys/class/dmi/id/sys_vendor", "QEMU\n")
    for gpu in range(4):
        host.pci(f"0000:00:0{gpu + 4}.0", "pci0000:00", "030200", "10de:20b5")
    for nic in range(2):
        address = f"0000:00:1{nic}.0"
        host.pci(address, "pci0000:00", "020000", "15b3:101e", max_link_speed="Unknown")
        host.rdma(f"mlx5_{nic}", address, nic, rate="100 Gb/sec (2X HDR)")
    return host


def plain(root: Path) -> FakeHost:
    """Return a machine without GPU and RDMA: one Ethernet card, one display controller."""
    host = FakeHost(root)
    host.cpus(["0-15"])
    host.pci("0000:00:02.0", "pci0000:00", "030000", "1a03:2000")
    host.pci("0000:00:03.0", "pci0000:00", "020000", "8086:1521")
    host.net("eno1", "0000:00:03.0", 1000)
    return host


class NVMLError(Exception):
    """What ``pynvml`` raises."""


class FakeNvml:
    """The calls of ``pynvml`` that a capture makes, for the GPUs of ``dgx``."""

    NVMLError = NVMLError
    NVML_NVLINK_MAX_LINKS = 36

    def __init__(self, gpus: int = 8, links: int = 18, down: tuple[tuple[int, int], ...] = ()):
        self.gpus, self.links, self.down = gpus, links, down
        self.fabric_state = 3
        self.open = 0

    def nvmlInit(self) -> None:
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return self.gpus

    def nvmlSystemGetDriverVersion(self) -> str:
        return "550.90.07"

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, gpu: int) -> bytes:
        return b"NVIDIA H100 80GB HBM3"

    def nvmlDeviceGetUUID(self, gpu: int) -> str:
        return f"GPU-0000{gpu}"

    def nvmlDeviceGetPciInfo(self, gpu: int) -> Any:
        return SimpleNamespace(busId=f"0000{gpu_address(gpu)}".upper().encode())

    def nvmlDeviceGetMemoryInfo(self, gpu: int) -> Any:
        return SimpleNamespace(total=81559 << 20)

    def nvmlDeviceGetMigMode(self, gpu: int) -> list[int]:
        return [0, 0]

    def nvmlDeviceGetCurrPcieLinkGeneration(self, gpu: int) -> int:
        return 1

    def nvmlDeviceGetMaxPcieLinkWidth(self, gpu: int) -> int:
        raise NVMLError("not supported")

    def nvmlDeviceGetNvLinkState(self, gpu: int, link: int) -> int:
        if link >= self.links:
            raise NVMLError("invalid argument")
        return int((gpu, link) not in self.down)

    def nvmlDeviceGetNvLinkVersion(self, gpu: int, link: int) -> int:
        return 7

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, gpu: int, link: int) -> int:
        return 2

    def nvmlDeviceGetNvLinkRemotePciInfo(self, gpu: int, link: int) -> Any:
        return SimpleNamespace(busId=f"00000000:C{link % 4 + 1}:00.0")

    def nvmlDeviceGetGpuFabricInfoV(self, gpu: int, reference: Any) -> int:
        info = reference._obj
        assert info.version == 0x02000024
        info.state = self.fabric_state
        info.clusterUuid[:] = list(UUID)
        info.cliqueId = 7
        return 0


def topo_text(gpus: int = 8) -> str:
    """Return ``nvidia-smi topo -m`` of ``dgx``, as the tool prints it."""
    labels = [f"GPU{gpu}" for gpu in range(gpus)] + [f"NIC{nic}" for nic in range(8)]
    head = "\t\x1b[4m" + "\t".join([*labels, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])
    rows = [head + "\x1b[0m"]

    def near(a: int, b: int) -> str:
        return "PIX" if a // 2 == b // 2 else "NODE" if a // 4 == b // 4 else "SYS"

    for gpu in range(gpus):
        cells = [" X " if other == gpu else "NV18" for other in range(gpus)]
        cells += [near(gpu, nic) for nic in range(8)]
        cpus = "56-111,168-223" if gpu >= 4 else "0-55,112-167"
        rows.append("\t".join([f"GPU{gpu}", *cells, cpus, str(gpu // 4), "N/A"]))
    for nic in range(8):
        cells = [near(gpu, nic) for gpu in range(gpus)]
        cells += [" X " if other == nic else near(nic, other) for other in range(8)]
        rows.append("\t".join([f"NIC{nic}", *cells]))
    legend = ["", "Legend:", "", "  X    = Self", "", "NIC Legend:", ""]
    return "\n".join([*rows, *legend, *(f"  NIC{nic}: mlx5_{nic}" for nic in range(8)), ""])


class Runner:
    """Runs no tool: gives the texts it was made with."""

    def __init__(self, texts: dict[str, Ran | str] | None = None) -> None:
        self.texts = texts or {}
        self.asked: list[str] = []

    def __call__(self, command: Sequence[str]) -> Ran:
        text = self.texts.get(" ".join(command[:3]), self.texts.get(command[0]))
        self.asked.append(" ".join(command))
        if text is None:
            return Ran(installed=False)
        return Ran(text) if isinstance(text, str) else text
