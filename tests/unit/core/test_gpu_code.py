"""Which code runs on which device: binary compatibility, PTX, arch- and family-specific code."""

import pytest

from compatgate.core.gpu_code import find_run_mode, parse_arch, parse_capability

TEGRA = ["5.3", "6.2", "7.2", "8.7", "10.1", "11.0"]

TABLE = [
    # machine code: the same major, a minor not above the device's
    ("sm_80", "8.0", "sass"),
    ("sm_80", "8.6", "sass"),
    ("sm_80", "8.9", "sass"),
    ("sm_86", "8.9", "sass"),
    ("sm_86", "8.0", None),
    ("sm_89", "8.6", None),
    ("sm_80", "9.0", None),
    ("sm_75", "8.0", None),
    ("sm_70", "7.5", "sass"),
    ("sm_100", "10.3", "sass"),
    ("sm_103", "10.0", None),
    ("sm_120", "12.1", "sass"),
    ("sm_100", "12.0", None),
    ("sm_90", "10.0", None),
    # PTX: any device of the same or a higher capability
    ("compute_80", "8.0", "ptx"),
    ("compute_80", "12.0", "ptx"),
    ("compute_90", "8.9", None),
    ("compute_50", "9.0", "ptx"),
    # machine code wins where both are there
    ("sm_80 compute_80", "8.6", "sass"),
    ("compute_80 sm_80", "8.6", "sass"),
    ("sm_80 compute_80", "9.0", "ptx"),
    ("sm_90 compute_90", "8.9", None),
    # a: exactly that capability, code and PTX alike
    ("sm_90a", "9.0", "sass"),
    ("sm_90a", "10.0", None),
    ("sm_100a", "10.3", None),
    ("sm_120a", "12.1", None),
    ("compute_90a", "9.0", "ptx"),
    ("compute_90a", "10.0", None),
    ("compute_100a", "10.3", None),
    # f: its family, upwards
    ("sm_100f", "10.0", "sass"),
    ("sm_100f", "10.3", "sass"),
    ("sm_103f", "10.0", None),
    ("sm_103f", "10.3", "sass"),
    ("sm_120f", "12.1", "sass"),
    ("sm_120f", "12.0", "sass"),
    ("sm_100f", "12.0", None),
    ("sm_100f", "11.0", None),
    ("compute_100f", "10.3", "ptx"),
    ("compute_100f", "12.0", None),
    ("compute_120f", "12.1", "ptx"),
    ("compute_103f", "10.0", None),
    # never between Tegra and other parts, nor between two Tegra parts
    ("sm_80", "8.7", None),
    ("sm_87", "8.9", None),
    ("sm_87", "8.7", "sass"),
    ("sm_86", "8.7", None),
    ("sm_70", "7.2", None),
    ("sm_72", "7.5", None),
    ("sm_72", "7.2", "sass"),
    ("sm_50", "5.3", None),
    ("sm_53", "5.3", "sass"),
    ("sm_60", "6.2", None),
    ("sm_61", "6.2", None),
    ("sm_62", "6.2", "sass"),
    ("sm_100", "10.1", None),
    ("sm_101", "10.3", None),
    ("sm_101", "10.1", "sass"),
    ("sm_101", "11.0", None),
    ("sm_110", "11.0", "sass"),
    ("sm_110", "10.1", None),
    # PTX knows no such border
    ("compute_80", "8.7", "ptx"),
    ("compute_87", "8.9", "ptx"),
    ("compute_72", "7.5", "ptx"),
    ("compute_101", "11.0", "ptx"),
    ("compute_90", "11.0", "ptx"),
]


def _codes(text):
    return [code for name in text.split() for code in parse_arch(name)]


@pytest.mark.parametrize(("codes", "device", "expected"), TABLE)
def test_code_runs_where_nvidia_says_it_does(codes, device, expected, facts):
    assert find_run_mode(_codes(codes), parse_capability(device), facts.arch) == expected


def test_without_code_nothing_runs(facts):
    assert find_run_mode([], (8, 0), facts.arch) is None


@pytest.mark.parametrize("device", TEGRA)
def test_the_facts_name_every_tegra_part(device, facts):
    assert parse_capability(device) in facts.arch.tegra


@pytest.mark.parametrize("device", TEGRA)
def test_a_tegra_part_runs_its_own_machine_code_only(device, facts):
    target = parse_capability(device)
    runs = {
        name
        for name in facts.arch.capabilities
        if find_run_mode(parse_arch(name), target, facts.arch)
    }
    assert runs == {device}
