"""nvidia-smi as a workload: columns of csv, values and checks of its log."""

from __future__ import annotations

from pathlib import Path

import pytest

FIXTURES = Path(__file__).parents[4] / "fixtures" / "nvidia_smi"
CSV = """index, name, driver_version, temperature.gpu, power.draw [W], clocks.current.sm [MHz]
0, NVIDIA L4, 550.54.15, 41, 28.53 W, 300 MHz
1, NVIDIA L4, 550.54.15, 44, [N/A], 2040 MHz
"""
# Made for this test in the layout of nvidia-smi -q (R535), shortened to what is read.
LOG = """==============NVSMI LOG==============

Driver Version                            : 535.104.05
CUDA Version                              : 12.2

Attached GPUs                             : 2
GPU 00000000:07:00.0
    Product Name                          : NVIDIA A100-SXM4-40GB
    Clocks Event Reasons
        Idle                              : Not Active
        HW Slowdown                       : Not Active
            HW Thermal Slowdown           : Not Active
    ECC Errors
        Volatile
            SRAM Uncorrectable            : 0
            DRAM Uncorrectable            : 0
        Aggregate
            DRAM Uncorrectable            : 7
    Remapped Rows
        Remapping Failure Occurred        : No
    Temperature
        GPU Current Temp                  : 34 C
    GPU Power Readings
        Power Draw                        : 60.14 W
    Clocks
        SM                                : 210 MHz

GPU 00000000:0F:00.0
    Product Name                          : NVIDIA A100-SXM4-40GB
    Clocks Event Reasons
        HW Slowdown                       : Not Active
            HW Thermal Slowdown           : Not Active
    ECC Errors
        Volatile
            SRAM Uncorrectable            : 0
            DRAM Uncorrectable            : 0
    Remapped Rows
        Remapping Failure Occurred        : No
    Temperature
        GPU Current Temp                  : 36 C
"""


def test_columns_of_csv_are_metrics_in_their_unit(read):
    report = read("nvidia-smi", CSV)
    assert report.problems == ()
    assert {m.name: (m.unit, m.values) for m in report.metrics} == {
        "temperature.gpu-gpu0": ("C", (41.0,)),
        "temperature.gpu-gpu1": ("C", (44.0,)),
        "power.draw-gpu0": ("W", (28.53,)),
        "clocks.current.sm-gpu0": ("MHz", (300.0,)),
        "clocks.current.sm-gpu1": ("MHz", (2040.0,)),
    }
    assert report.env is not None
    assert report.env.driver == "550.54.15"


def test_a_loop_appends(read, values):
    rows = "".join(CSV.splitlines(keepends=True)[1:])
    assert values(read("nvidia-smi", CSV + rows))["temperature.gpu-gpu0"] == (41.0, 41.0)


def test_a_row_that_is_cut_off_is_a_problem(read):
    (problem,) = read("nvidia-smi", CSV[:-11]).problems
    assert problem.startswith("line 3: the row has 5 of 6 columns")


def test_gpus_that_no_column_tells_apart_are_a_problem(read):
    text = "\n".join(line.partition(", ")[2] for line in CSV.splitlines())
    assert "no column identifies the GPU" in read("nvidia-smi", text).problems[0]


def test_a_value_that_could_not_be_read_is_a_problem(read):
    assert read("nvidia-smi", CSV.replace("28.53 W", "[Unknown Error]")).problems


def test_the_log_gives_metrics_and_checks(read, values, checks):
    report = read("nvidia-smi", LOG)
    assert report.problems == ()
    assert values(report) == {
        "temperature-gpu0": (34.0,),
        "temperature-gpu1": (36.0,),
        "power-gpu0": (60.14,),
        "clock-sm-gpu0": (210.0,),
    }
    assert checks(report) == {"ecc": True, "unthrottled": True, "rows": True}


@pytest.mark.parametrize(
    ("old", "new", "check"),
    [
        ("DRAM Uncorrectable            : 0", "DRAM Uncorrectable            : 2", "ecc"),
        (
            "HW Thermal Slowdown           : Not Active",
            "HW Thermal Slowdown : Active",
            "unthrottled",
        ),
        ("Failure Occurred        : No", "Failure Occurred        : Yes", "rows"),
    ],
)
def test_a_sick_gpu_fails_its_check(read, checks, old, new, check):
    assert checks(read("nvidia-smi", LOG.replace(old, new, 1)))[check] is False


def test_a_log_that_ends_early_is_a_problem(read):
    report = read("nvidia-smi", LOG[: LOG.index("GPU 00000000:0F")])
    assert "2 GPUs are attached, but 1 are described" in report.problems
    assert not report.checks


def test_xml_names_the_same_things(read, values, checks):
    text = (
        "<?xml version='1.0'?><nvidia_smi_log><driver_version>535.104.05</driver_version>"
        "<attached_gpus>1</attached_gpus><gpu id='0'><product_name>NVIDIA L4</product_name>"
        "<temperature><gpu_temp>40 C</gpu_temp></temperature>"
        "<ecc_errors><volatile><dram_uncorrectable>1</dram_uncorrectable></volatile></ecc_errors>"
        "<gpu_power_readings><power_draw>20.00 W</power_draw></gpu_power_readings>"
        "<clocks><sm_clock>210 MHz</sm_clock></clocks></gpu></nvidia_smi_log>"
    )
    report = read("nvidia-smi", text)
    assert report.problems == ()
    assert values(report) == {
        "temperature-gpu0": (40.0,),
        "power-gpu0": (20.0,),
        "clock-sm-gpu0": (210.0,),
    }
    assert checks(report) == {"ecc": False}
    assert read("nvidia-smi", text[:-40]).problems


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("error-*.txt")), ids=lambda path: path.name)
def test_an_error_of_nvidia_smi_is_a_problem_that_says_so(read, path):
    report = read("nvidia-smi", path.read_bytes())
    assert len(report.problems) == 1
    assert report.env is None


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("table-*.txt")), ids=lambda path: path.name)
def test_tables_of_every_release_name_the_driver(read, path):
    report = read("nvidia-smi", path.read_bytes())
    assert report.problems == ()
    assert report.env is not None
    assert report.env.driver
