"""Hosts side by side: the value that most have, and who differs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from compatgate.canary.fleet import HostStack, compare_hosts, host_stack
from compatgate.canary.run import Device, Env


def _hosts(component: str, **values: str) -> list[HostStack]:
    return [HostStack(host, {component: (value,)}) for host, value in values.items()]


def test_the_host_that_differs_is_named_with_what_it_has() -> None:
    (line,) = compare_hosts(_hosts("driver", a="535.183.01", b="535.183.01", c="550.54.15"))
    assert (line.component, line.majority) == ("driver", "535.183.01")
    assert line.agree == ("a", "b")
    assert line.differ == {"c": "550.54.15"}


def test_versions_are_compared_as_such_however_they_are_spelled() -> None:
    (line,) = compare_hosts(_hosts("nccl", a="2.27.3", b="22703"))
    assert line.differ == {}
    (line,) = compare_hosts(_hosts("driver", a="525.060.13", b="525.60.13"))
    assert line.differ == {}


def test_cuda_is_compared_as_far_as_every_host_states_it() -> None:
    (line,) = compare_hosts(_hosts("cuda", a="12.4", b="12.4.1", c="12.4.0"))
    assert line.differ == {}
    (line,) = compare_hosts(_hosts("cuda", a="12.4.1", b="12.4.1", c="12.4.0"))
    assert line.differ == {"c": "12.4.0"}


def test_a_tie_has_no_majority_and_everyone_differs() -> None:
    (line,) = compare_hosts(_hosts("cudnn", a="9.1.0", b="8.9.7"))
    assert line.majority is None
    assert line.agree == ()
    assert line.differ == {"a": "9.1.0", "b": "8.9.7"}


def test_a_host_that_did_not_measure_neither_agrees_nor_differs() -> None:
    stacks = [*_hosts("nccl", a="2.21.5", b="2.21.5"), HostStack("c", {"cuda": ("12.4",)})]
    cuda, nccl = compare_hosts(stacks)
    assert (nccl.component, nccl.silent, nccl.differ) == ("nccl", ("c",), {})
    assert (cuda.agree, cuda.silent) == (("c",), ("a", "b"))


def test_a_host_whose_measurements_disagree_differs_from_those_that_do_not() -> None:
    stacks = [*_hosts("cuda", a="12.4", b="12.4"), HostStack("c", {"cuda": ("12.4", "12.6")})]
    (line,) = compare_hosts(stacks)
    assert line.differ == {"c": "12.4 and 12.6"}


def test_a_version_that_cannot_be_read_is_compared_as_text() -> None:
    (line,) = compare_hosts(_hosts("cuda", a="12.4", b="12.4", c="n/a"))
    assert line.differ == {"c": "n/a"}


def test_a_stack_is_what_the_env_lines_of_a_host_say() -> None:
    gpus = (Device("NVIDIA A100-SXM4-80GB"), Device("NVIDIA A100-SXM4-80GB"))
    envs = [
        Env("535.183.01", gpus, {"cuda": "12.4"}),
        Env("535.183.01", (), {"nccl": "2.21.5"}, {}, {"transports": {"P2P/CUMEM": 48, "NVLS": 2}}),
    ]
    assert host_stack("a", envs, "run_1") == HostStack(
        "a",
        {
            "driver": ("535.183.01",),
            "gpu": ("2 x NVIDIA A100-SXM4-80GB",),
            "cuda": ("12.4",),
            "nccl": ("2.21.5",),
            "transport": ("NVLS, P2P/CUMEM",),
        },
        "run_1",
    )


def test_no_host_has_no_drift() -> None:
    assert compare_hosts([]) == []


@given(
    st.dictionaries(
        st.sampled_from("abcdefgh"), st.sampled_from(["12.4", "12.4.1", "12.6", "x", ""])
    )
)
def test_every_host_is_in_exactly_one_place(values: dict[str, str]) -> None:
    stacks = [HostStack(h, {"cuda": (v,)} if v else {}) for h, v in values.items()]
    for line in compare_hosts(stacks):
        assert sorted([*line.agree, *line.differ, *line.silent]) == sorted(values)
        assert len(line.agree) != 0 or line.majority is None
