"""A Jetson tells its release and module by its own files, whatever nvidia-smi prints."""

from pathlib import Path

import pytest

from compatgate.catalog import load_facts
from compatgate.discovery import probe
from compatgate.discovery.machine import Root
from compatgate.discovery.probe import probe_machine, probe_output
from compatgate.discovery.tegra import name_gpu, parse_board, read_board
from compatgate.errors import BadInput

ORIN = (
    "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64, DATE: Wed Jan"
    "  8 01:49:37 UTC 2025\n# KERNEL_VARIANT: oot\nTARGET_USERSPACE_LIB_DIR=nvidia\n"
    "TARGET_USERSPACE_LIB_DIR_PATH=usr/lib/aarch64-linux-gnu/nvidia\n"
)
XAVIER = (
    "# R35 (release), REVISION: 2.1, GCID: 32398013, BOARD: t186ref, EABI: aarch64, DATE: Sun Jan "
    "22 03:18:23 UTC 2023\n"
)
THOR = (
    "# R38 (release), REVISION: 2.0, GCID: 41844464, BOARD: generic, EABI: aarch64, DATE: Fri Aug "
    "22 00:55:42 UTC 2025\n"
)
THOR_TREE = "nvidia,p4071-0000+p3834-0008\0nvidia,p3834-0008\0nvidia,tegra264\0"
TEXTS = [  # text, l4t, jetpack, GPU
    (ORIN + "NVIDIA Jetson AGX Orin Developer Kit\0", "36.4.3", "", "Jetson-AGX-Orin"),
    (XAVIER + "NVIDIA Jetson Xavier NX Developer Kit\n", "35.2.1", "", "Jetson-Xavier-NX"),
    (THOR + THOR_TREE, "38.2.0", "", "sm_110"),
    (
        ORIN + "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super\0",
        "36.4.3",
        "",
        "Jetson-Orin-Nano",
    ),
    (ORIN + "Jetson reComputer J4012\0nvidia,tegra234\0", "36.4.3", "", "sm_87"),
    (
        "ii  nvidia-l4t-core  39.2.0-20260601141651  arm64  NVIDIA Core Package\n"
        "ii  nvidia-jetpack   7.2-b184               arm64  NVIDIA Jetpack Meta Package\n"
        "nvidia,tegra234\n",
        "39.2.0",
        "7.2",
        "sm_87",
    ),
    (
        "L4T_VERSION=38.4.0  JETPACK_VERSION=7.1  CUDA_VERSION=13.0\nnvidia,tegra264\n",
        "38.4.0",
        "7.1",
        "sm_110",
    ),
]
TEGRASTATS = [
    "RAM 2449/62841MB (lfb 14x4MB) CPU [1%@729,0%@729] GR3D_FREQ 0% cpu@43.1C soc2@40C",
    "RAM 9051/15823MB (lfb 24x4MB) SWAP 0/7911MB GR3D_FREQ 12%@[1300,1300] cpu@52.968C/52.968C",
    "RAM 3120/125772MB GR3D_FREQ @[1000,1000,1000] VDD_GPU_SOC 5139mW/5139mW/5139mW",
]


@pytest.fixture(scope="module")
def facts():
    return load_facts()


def test_the_files_of_a_jetson_name_release_and_module(facts):
    for text, l4t, jetpack, gpu in TEXTS:
        board = parse_board(text)
        assert board is not None
        assert (board.l4t, board.jetpack) == (l4t, jetpack)
        pools = probe_output(text, facts).pools
        from compatgate.core.gpus import resolve_gpu

        assert [resolve_gpu(pool.gpu, facts.gpus).name for pool in pools] == [gpu]
        assert dict(pools[0].node).get("l4t") == l4t
        assert pools[0].cpu == "aarch64"


def test_other_machines_have_no_board(facts):
    assert parse_board("Linux node17 6.8.0-45-generic x86_64 NVIDIA H100") is None
    assert read_board(Root("/nowhere")) is None


def test_tegrastats_alone_is_refused_with_what_to_give(facts):
    for line in TEGRASTATS:
        with pytest.raises(BadInput, match="names neither the module") as caught:
            probe_output(line, facts)
        assert "/etc/nv_tegra_release" in (caught.value.hint or "")


def test_the_module_completes_what_nvidia_smi_prints(facts):
    folder = Path(__file__).parents[2] / "fixtures" / "nvidia_smi"
    table = (folder / "table-r540-jetson-orin.txt").read_text()
    alone = probe_output(table, facts).pools[0]
    assert (alone.gpu, dict(alone.node).get("l4t")) == ("Orin (nvgpu)", None)
    both = probe_output(table + ORIN + "NVIDIA Jetson Orin NX Developer Kit\n", facts).pools[0]
    assert (both.gpu, both.driver) == ("NVIDIA Jetson Orin NX Developer Kit", "540.4.0")
    assert dict(both.node)["l4t"] == "36.4.3"
    assert both.platform == "jetson/orin"


def test_a_server_is_not_taken_for_the_jetson_of_another_text(facts):
    folder = Path(__file__).parents[2] / "fixtures" / "nvidia_smi"
    table = (folder / "table-r535-cuda-err.txt").read_text()
    pool = probe_output(table + ORIN + "NVIDIA Jetson Orin NX Developer Kit\n", facts).pools[0]
    assert "L4" in pool.gpu
    assert "l4t" not in dict(pool.node)


def test_a_machine_without_nvidia_smi_is_probed_by_its_files(tmp_path, monkeypatch, facts):
    files = {
        "etc/nv_tegra_release": XAVIER,
        "proc/device-tree/model": "NVIDIA Jetson AGX Xavier Developer Kit\0",
        "proc/device-tree/compatible": "nvidia,p2972-0000\0nvidia,tegra194\0",
        "var/lib/dpkg/status": "Package: nvidia-jetpack\nStatus: install ok installed\n"
        "Version: 5.1-b147\n\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(probe, "probe_gpus", lambda notes: (None, None))
    found = probe_machine(facts, root=str(tmp_path))
    (pool,) = found.pools
    assert pool.gpu == "NVIDIA Jetson AGX Xavier Developer Kit"
    assert dict(pool.node) == {"l4t": "35.2.1", "jetpack": "5.1"}
    assert pool.platform == "jetson/xavier"


def test_a_carrier_of_another_maker_is_told_by_its_chip(facts):
    board = parse_board("Acme Edge Box\nnvidia,tegra234\n")
    assert board is not None
    assert name_gpu(board, facts) == "sm_87"
