"""What ``nvidia-smi`` printed, in every form and version, is read as one thing."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import read_table

from compatgate.catalog import load_facts
from compatgate.core.facts import Facts
from compatgate.core.gpus import resolve_gpu
from compatgate.discovery.nvidia_smi import parse_nvidia_smi
from compatgate.discovery.nvidia_smi.report import (
    find_disagreements,
    group_pools,
)
from compatgate.errors import BadInput

FOLDER = Path(__file__).parents[3] / "fixtures" / "nvidia_smi"
EXPECTED: dict[str, dict[str, Any]] = read_table(FOLDER / "expected.yaml")
READ = sorted(name for name, expected in EXPECTED.items() if "error" not in expected)
REFUSED = sorted(name for name, expected in EXPECTED.items() if "error" in expected)


@pytest.fixture(scope="module")
def facts() -> Facts:
    return load_facts([])


def read(name: str) -> str:
    return (FOLDER / name).read_text()


def test_every_fixture_has_an_expectation() -> None:
    files = {path.name for path in FOLDER.iterdir()} - {"README.md", "expected.yaml"}
    assert files == set(EXPECTED)


@pytest.mark.parametrize("name", READ)
def test_an_output_is_read_as_its_form_driver_and_cuda(name: str) -> None:
    report, expected = parse_nvidia_smi(read(name)), EXPECTED[name]
    assert report.form == expected["form"]
    assert report.driver == expected.get("driver")
    assert report.cuda == expected.get("cuda")
    assert report.os == expected.get("os", "linux")


@pytest.mark.parametrize("name", READ)
def test_devices_become_pools_of_one_product_each(name: str, facts: Facts) -> None:
    found = group_pools(parse_nvidia_smi(read(name)), facts.gpus)
    skus = {resolve_gpu(pool.gpu, facts.gpus).sku: pool.devices for pool in found.pools}
    assert skus == EXPECTED[name]["pools"]
    note = EXPECTED[name].get("note")
    assert bool(found.notes) == bool(note)
    assert note is None or note in found.notes[0]


@pytest.mark.parametrize("name", READ)
def test_a_cuda_version_that_is_not_the_drivers_is_reported(name: str, facts: Facts) -> None:
    conflicts = find_disagreements(parse_nvidia_smi(read(name)), facts)
    expected = EXPECTED[name].get("conflict")
    assert len(conflicts) == (1 if expected else 0)
    assert expected is None or expected in conflicts[0].message


@pytest.mark.parametrize("name", REFUSED)
def test_an_error_that_was_printed_becomes_a_clear_one(name: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_nvidia_smi(read(name), origin="node17.txt")
    assert EXPECTED[name]["error"] in caught.value.problem
    assert caught.value.field == "node17.txt"
    assert caught.value.hint


@pytest.mark.parametrize("text", ["", "  \n\n", "\ufeff"])
def test_nothing_is_called_empty(text: str) -> None:
    with pytest.raises(BadInput, match=r"is empty|is not output"):
        parse_nvidia_smi(text)


@pytest.mark.parametrize("text", ["hello", "<html></html>", "{}", "GPU", "a, b\n1, 2\n", "|||\n"])
def test_other_text_is_not_taken_for_output_of_nvidia_smi(text: str) -> None:
    with pytest.raises(BadInput, match="is not output of nvidia-smi"):
        parse_nvidia_smi(text)


def test_a_cut_off_xml_document_is_refused() -> None:
    with pytest.raises(BadInput, match="incomplete"):
        parse_nvidia_smi(read("xml-r535-a100-mig.xml")[:900])


def test_entities_in_xml_are_not_expanded() -> None:
    text = (
        '<!DOCTYPE x [<!ENTITY a "NVIDIA L4">]><nvidia_smi_log><gpu id="0">'
        "<product_name>&a;</product_name></gpu></nvidia_smi_log>"
    )
    with pytest.raises(BadInput):
        parse_nvidia_smi(text)


def test_windows_line_ends_and_quoting_do_not_matter() -> None:
    quoted = "".join(f"> {line}\r\n" for line in read("table-r535-wsl.txt").splitlines())
    assert parse_nvidia_smi(quoted) == parse_nvidia_smi(read("table-r535-wsl.txt"))


def test_a_working_gpu_outweighs_an_error_about_another() -> None:
    text = "Unable to determine the device handle for GPU1\n" + read("csv-without-header.csv")
    assert parse_nvidia_smi(text).driver == "570.195.03"


def test_two_outputs_of_one_host_complete_each_other() -> None:
    report = parse_nvidia_smi(read("list-and-table.txt"))
    device = report.devices[0]
    assert device.name == "NVIDIA A100 80GB PCIe"
    assert device.memory_mib == 81920
    assert [part.profile for part in device.slices] == ["3g.40gb", "1g.20gb"]


@given(st.text(max_size=400))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(BadInput):
        parse_nvidia_smi(text)


@given(st.sampled_from(sorted(EXPECTED)), st.data())
def test_any_part_of_an_output_is_read_or_refused(name: str, data: st.DataObject) -> None:
    lines = read(name).splitlines(keepends=True)
    keep = data.draw(st.lists(st.booleans(), min_size=len(lines), max_size=len(lines)))
    text = "".join(line for line, kept in zip(lines, keep, strict=True) if kept)
    cut = data.draw(st.integers(0, len(text)))
    with suppress(BadInput):
        group_pools(parse_nvidia_smi(text[:cut]), load_facts([]).gpus)


_TORCH_REPORT = """PyTorch version: 2.4.1+cu121
CUDA used to build PyTorch: 12.1
OS: Ubuntu 22.04.4 LTS (x86_64)
GPU models and configuration:
GPU 0: NVIDIA A100-SXM4-80GB
GPU 1: NVIDIA A100-SXM4-80GB

Nvidia driver version: 535.104.05
"""


def test_the_report_of_collect_env_names_gpus_and_driver() -> None:
    report = parse_nvidia_smi(_TORCH_REPORT)
    assert (report.form, report.driver, report.os) == ("collect_env", "535.104.05", "linux")
    assert [device.name for device in report.devices] == ["NVIDIA A100-SXM4-80GB"] * 2
    one = _TORCH_REPORT.replace("configuration:\nGPU 0", "configuration: GPU 0")
    assert parse_nvidia_smi(one) == report
    assert parse_nvidia_smi(_TORCH_REPORT.replace("535.104.05", "Could not collect")).driver is None


def test_a_report_of_collect_env_without_a_gpu_is_refused() -> None:
    with pytest.raises(BadInput, match="names no GPU"):
        parse_nvidia_smi(_TORCH_REPORT.replace("GPU 0", "No").replace("GPU 1", "No"))
