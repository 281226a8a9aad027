"""The first five checks, on made-up machines: a folder as root, and a program as nvidia-smi."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compatgate.canary.health import first_five
from compatgate.canary.health.first_five import check_all, observe
from compatgate.canary.health.host import Host
from compatgate.core.facts import Facts
from compatgate.discovery.machine.files import Root

STAT = "cpu  {user} 0 0 1000 {iowait} 0 0 0 0 0\ncpu0 1 0 0 1 0 0 0 0 0 0\n"
NET = (
    "Inter-|   Receive |  Transmit\n face |bytes packets errs drop\n"
    "    lo: 1 1 0 500 0 0 0 0 1 1 0 0 0 0 0 0\n"
    "  eth0: 1 {packets} 0 {drops} 0 0 0 0 1 0 0 0 0 0 0 0\n"
)
VERSION = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {}  Release Build  (x)\n"


class Machine:
    """A host in a folder, on which a driver lists GPUs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sleeps: list[Callable[[], None]] = []
        self.write("dev/kmsg", "6,1,1,-;Linux version 6.8\n")
        self.counters()

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def counters(self, user: int = 0, iowait: int = 0, packets: int = 9, drops: int = 0) -> None:
        self.write("proc/stat", STAT.format(user=user, iowait=iowait))
        self.write("proc/net/dev", NET.format(packets=packets, drops=drops))

    def pci(self, *addresses: str, driver: str = "nvidia", kind: str = "0x030200") -> None:
        (self.root / "sys/bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
        for address in addresses:
            folder = f"sys/bus/pci/devices/{address}"
            self.write(f"{folder}/vendor", "0x10de\n")
            self.write(f"{folder}/class", f"{kind}\n")
            (self.root / folder / "driver").symlink_to(self.root / "sys/bus/pci/drivers" / driver)

    def driver(self, version: str = "575.51.02", libraries: str = "575.51.02") -> None:
        self.write("proc/driver/nvidia/version", VERSION.format(version))
        self.write(f"usr/lib/x86_64-linux-gnu/libcuda.so.{libraries}", "")

    def smi(self, *gpus: str, says: str = "", code: int = 0) -> None:
        text = "".join(gpus)
        log = f"<nvidia_smi_log><driver_version>575.51.02</driver_version>{text}</nvidia_smi_log>"
        self.write("smi.xml", log if gpus else says)
        self.write("nvidia-smi", f"#!/bin/sh\ncat {self.root}/smi.xml\nexit {code}\n")
        (self.root / "nvidia-smi").chmod(0o755)

    def good(self, **gpu: Any) -> None:
        self.pci("0000:9b:00.0", "0000:9c:00.0")
        self.driver()
        self.smi(xml("9b", **gpu), xml("9c", **gpu))

    def checks(self, facts: Facts, meanwhile: Callable[[], None] = lambda: None) -> dict[str, Any]:
        seen = observe(
            facts,
            root=Root(str(self.root)),
            program=str(self.root / "nvidia-smi"),
            sleep=lambda _: meanwhile(),
        )
        return {check.id: (check.state, check.found) for check in check_all(seen, facts)}


def xml(
    bus: str,
    util: int = 0,
    clock: int = 1980,
    reason: str = "gpu_idle",
    pid: int | None = None,
    fabric: str = "N/A",
    gsp: str = "575.51.02",
    remap: str = "No",
) -> str:
    process = f"<process_info><pid>{pid}</pid><type>C</type></process_info>" if pid else ""
    return (
        f'<gpu id="00000000:{bus}:00.0"><product_name>NVIDIA H100 80GB HBM3</product_name>'
        f"<gsp_firmware_version>{gsp}</gsp_firmware_version>"
        f"<clocks_event_reasons><clocks_event_reason_{reason}>Active</clocks_event_reason_{reason}>"
        f"</clocks_event_reasons><utilization><gpu_util>{util} %</gpu_util></utilization>"
        f"<remapped_rows><remapped_row_failure>{remap}</remapped_row_failure></remapped_rows>"
        f"<clocks><sm_clock>{clock} MHz</sm_clock></clocks>"
        f"<max_clocks><sm_clock>1980 MHz</sm_clock></max_clocks>"
        f"<fabric><state>{fabric}</state></fabric><processes>{process}</processes></gpu>"
    )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_good_node_is_ok_five_times(machine: Machine, facts: Facts) -> None:
    machine.good()
    found = machine.checks(facts, lambda: machine.counters(user=1000, iowait=1, packets=900))
    assert {name: state for name, (state, _) in found.items()} == dict.fromkeys(
        ("visible-gpus", "recent-errors", "work", "input", "versions"), "ok"
    )
    assert found["visible-gpus"][1].startswith("2 listed by the driver, 2 on the PCI bus: NVIDIA H")
    assert "0 busy, 2 idle (0 %, 1980 MHz)" in found["work"][1]
    assert "iowait 0.1 %" in found["input"][1]
    assert "module 575.51.02 (open)" in found["versions"][1]


def test_a_machine_without_gpu_and_driver_is_not_called_good(
    machine: Machine, facts: Facts
) -> None:
    found = machine.checks(facts, lambda: machine.counters(user=1000))
    states = {name: state for name, (state, _) in found.items()}
    assert states.pop("input") == "ok"
    assert set(states.values()) == {"could-not-look"}
    assert all("GPU node" in text for name, (_, text) in found.items() if name != "input")


def test_each_fault_is_seen_by_its_check(tmp_path: Path, facts: Facts) -> None:
    """Each case breaks one thing of a good node."""

    def lost_on_the_bus(m: Machine) -> None:
        m.pci("0000:9d:00.0")

    def foreign_driver(m: Machine) -> None:
        m.pci("0000:9d:00.0", driver="nouveau")

    def xid(m: Machine) -> None:
        m.write("dev/kmsg", "4,2,2,-;NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.\n")

    def remap(m: Machine) -> None:
        m.smi(xml("9b", remap="Yes"), xml("9c"))

    def heat(m: Machine) -> None:
        m.smi(xml("9b", reason="hw_thermal_slowdown"), xml("9c"))

    def idle_clocks(m: Machine) -> None:
        m.smi(xml("9b", util=99, clock=345), xml("9c"))

    def hung(m: Machine) -> None:
        m.smi(xml("9b", util=99, pid=7), xml("9c", pid=8))

    def iowait(m: Machine) -> None:
        m.counters(user=700, iowait=300)

    def pressure(m: Machine) -> None:
        m.write("proc/pressure/io", "some avg10=61.25 avg60=1.00 avg300=1.00 total=1\n")

    def drops(m: Machine) -> None:
        m.counters(user=1000, packets=10_009, drops=11)

    def libraries(m: Machine) -> None:
        (m.root / "usr/lib/x86_64-linux-gnu/libcuda.so.575.51.02").unlink()
        m.write("usr/lib/x86_64-linux-gnu/libcuda.so.580.65.06", "")

    def firmware(m: Machine) -> None:
        m.smi(xml("9b", gsp="570.86.15"), xml("9c"))

    def fabric(m: Machine) -> None:
        m.smi(xml("9b", fabric="In Progress"), xml("9c", fabric="In Progress"))

    cases: list[tuple[Callable[[Machine], None], str, str]] = [
        (lost_on_the_bus, "visible-gpus", "2 listed by the driver, 3 on the PCI bus"),
        (foreign_driver, "visible-gpus", "0000:9d:00.0 (nouveau)"),
        (xid, "recent-errors", "0000:9b:00: Xid 79"),
        (remap, "recent-errors", "a memory row could not be remapped"),
        (heat, "work", "GPU 0: the hardware lowered the clocks because of heat"),
        (idle_clocks, "work", "GPU 0: busy at 345 of 1980 MHz"),
        (hung, "work", "GPU 1: 0 % with a process, while others work"),
        (iowait, "input", "iowait 30.0 %"),
        (pressure, "input", "I/O pressure 61.2 %"),
        (drops, "input", "eth0 dropped 11 of"),
        (libraries, "versions", "libraries 580.65.06, module 575.51.02"),
        (firmware, "versions", "GSP firmware 570.86.15, 575.51.02"),
        (fabric, "versions", "Fabric Manager is not seen (CUDA error 802)"),
    ]
    for number, (break_it, check, said) in enumerate(cases):
        machine = Machine(tmp_path / str(number))
        machine.good()

        def later(m: Machine = machine, fault: Callable[[Machine], None] = break_it) -> None:
            m.counters(user=1000)
            if fault in (iowait, drops):
                fault(m)

        if break_it not in (iowait, drops):
            break_it(machine)
        found = machine.checks(facts, later)
        wrong = {name for name, (state, _) in found.items() if state != "ok"}
        assert (break_it.__name__, wrong) == (break_it.__name__, {check})
        assert found[check][0] == "not-ok"
        assert said in found[check][1]


def test_what_is_ordinary_is_no_fault(machine: Machine, facts: Facts) -> None:
    machine.good(util=0, pid=7)  # servers wait for requests
    machine.write("dev/kmsg", "4,2,2,-;NVRM: Xid (PCI:0000:9b:00): 13, pid=7, Graphics Exception\n")
    machine.counters(drops=5)
    found = machine.checks(facts, lambda: machine.counters(user=1000, packets=2000, drops=9))
    assert {state for state, _ in found.values()} == {"ok"}
    assert "2 of them with a process that waits or hangs" in found["work"][1]
    assert "1 noted" in found["recent-errors"][1]


def test_a_module_that_is_not_loaded_is_told_with_its_owner(machine: Machine, facts: Facts) -> None:
    machine.pci("0000:01:00.0", driver="nouveau", kind="0x030000")
    machine.smi(
        says="NVIDIA-SMI has failed because it couldn't communicate with the driver.", code=9
    )
    found = machine.checks(facts)
    assert found["visible-gpus"][0] == found["versions"][0] == "not-ok"
    assert "nouveau" in found["versions"][1]
    assert "couldn't communicate" in found["visible-gpus"][1]


def test_mixed_versions_are_named_by_nvidia_smi_itself(machine: Machine, facts: Facts) -> None:
    machine.pci("0000:9b:00.0")
    machine.driver("570.86.15", "575.51.02")
    machine.smi(says="Failed to initialize NVML: Driver/library version mismatch", code=18)
    found = machine.checks(facts)
    assert found["recent-errors"][0] == found["versions"][0] == "not-ok"
    assert "driver-library-mismatch" in found["recent-errors"][1]


def test_without_nvml_and_nvidia_smi_the_driver_cannot_be_asked(
    machine: Machine, facts: Facts
) -> None:
    machine.pci("0000:9b:00.0")
    machine.driver()
    (machine.root / "dev/kmsg").unlink()
    (machine.root / "proc/net/dev").unlink()
    found = machine.checks(facts)
    assert {name: state for name, (state, _) in found.items()} == {
        "visible-gpus": "could-not-look",
        "recent-errors": "could-not-look",
        "work": "could-not-look",
        "input": "could-not-look",
        "versions": "ok",
    }
    assert "No such file" in found["recent-errors"][1]


def test_gpus_of_others_are_not_missed(machine: Machine, facts: Facts) -> None:
    """Virtual machines have some GPUs, and a container is given a part of the rest."""
    machine.good()
    machine.pci("0000:c1:00.0", driver="vfio-pci")
    assert machine.checks(facts)["visible-gpus"][0] == "ok"
    machine.pci("0000:d1:00.0", "0000:d2:00.0")
    assert machine.checks(facts)["visible-gpus"][0] == "not-ok"
    machine.write("dev/nvidia0", "")
    machine.write("dev/nvidia3", "")
    machine.write("dev/nvidiactl", "")
    state, found = machine.checks(facts)["visible-gpus"]
    assert (state, "2 given to this container" in found) == ("ok", True)


def test_a_gpu_without_utilisation_is_not_called_idle(machine: Machine, facts: Facts) -> None:
    machine.good()
    mig = xml("9b").replace("0 %", "N/A")
    machine.smi(mig)
    assert machine.checks(facts)["work"][0] == "could-not-look"
    machine.smi(mig.replace("gpu_idle", "hw_slowdown"))
    assert machine.checks(facts)["work"][0] == "not-ok"


def test_a_fabric_manager_of_another_version_is_told(
    machine: Machine, facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.good()
    machine.pci("0000:c3:00.0", driver="nvidia-nvswitch", kind="0x068000")
    machine.write("proc/4711/comm", "nv-fabricmanage\n")
    state, found = machine.checks(facts)["versions"]
    assert (state, "Fabric Manager runs" in found) == ("ok", True)
    look = first_five.look_at_host

    def with_version(root: Root) -> Host:
        return msgspec.structs.replace(look(root), fabric_manager_version="575.57.08")

    monkeypatch.setattr(first_five, "look_at_host", with_version)
    state, found = machine.checks(facts)["versions"]
    assert (state, "Fabric Manager 575.57.08, module 575.51.02" in found) == ("not-ok", True)
