"""NCCL's own words on the way it takes, as several of its releases write them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from types import ModuleType

import pytest

from compatgate.resources import canary_dir

Load = Callable[[str], ModuleType]

# Lines as users show them in github.com/NVIDIA/nccl issues 952 and 1189, and in
# github.com/NVIDIA/nccl-tests issues 166 and 213; names of hosts are changed.
_LINES = (
    "a:4015540:4015653 [1] NCCL INFO Channel 00/0 : 3[1] -> 2[0] via P2P/CUMEM",
    "a:919:1150 [0] NCCL INFO Channel 01/0 : 8[0] -> 15[7] via P2P/IPC/read",
    "a:39964:40050 [6] NCCL INFO Channel 09 : 6[6] -> 7[7] via SHM/direct/direct",
    "a:9621:9692 [7] NCCL INFO Channel 14/0 : 15[7] -> 0[0] [send] via NET/Socket/0",
    "a:4015539:4015652 [0] NCCL INFO Channel 07/0 : 0[0] -> 2[0] [receive] via NET/IB/3/GDRDMA",
    "a:798:813 [3] NCCL INFO Channel 02/0 : 3[3] -> 4[4] via P2P/direct pointer",
)
LINES = {line: line.split(" via ")[1] for line in _LINES}
OTHERS = (
    "a:987:1347 [7] NCCL INFO NCCL_IB_GID_INDEX set by environment to 3.",
    "a:1:2 [0] NCCL INFO NET/Socket : Using [0]lo:127.0.0.1<0>",
    "a:1:2 [0] NCCL INFO Channel 00/02 : 0 1",
)


@pytest.fixture
def transports(shared: Load, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(canary_dir() / "nccl-allreduce"))
    return shared("canary_nccl")


def _read(transports: ModuleType, lines: Iterable[str]) -> Counter[str]:
    return transports.by_way(transports.between(lines))


@pytest.mark.parametrize("line", LINES)
def test_channels_name_their_way(transports: ModuleType, line: str) -> None:
    assert _read(transports, [line + "\n"]) == {LINES[line]: 1}


@pytest.mark.parametrize("line", OTHERS)
def test_lines_about_something_else_are_not_counted(transports: ModuleType, line: str) -> None:
    assert _read(transports, [line]) == {}


def test_sockets_are_told_from_the_rest(transports: ModuleType) -> None:
    found = _read(transports, [*LINES, *OTHERS])
    assert transports.through(found, transports.SLOW) == 1
    assert transports.words(found).startswith("P2P/CUMEM x 1")
    assert transports.words(_read(transports, OTHERS)) == "none named"


def test_an_existing_nvlink_must_be_used(transports: ModuleType, shared: Load) -> None:
    topology = shared("topology")
    ways = transports.between([*LINES, *OTHERS])
    assert ways[(6, 7, "SHM/direct/direct")] == 1
    joined = topology.Links([18] * 8, {(6, 7), (7, 6), (3, 2), (8, 15)})
    assert topology.around(ways, joined) == ["6 -> 7 via SHM/direct/direct"]
    assert topology.around(ways, topology.Links([0] * 8, set())) == []
    assert (joined.least, topology.Links([0], set()).least) == (18, 1)


@pytest.mark.parametrize(
    ("way", "links", "failed"),
    [
        ("P2P/CUMEM", ([4, 4], {(0, 1), (1, 0)}), set()),
        ("NET/Socket/0", ([0, 0], set()), {"transport"}),
        ("SHM/direct/direct", ([4, 2], {(0, 1), (1, 0)}), {"topology", "links"}),
    ],
)
def test_the_transport_is_held_against_the_links_that_nvml_shows(
    way: str,
    links: tuple[list[int], set[tuple[int, int]]],
    failed: set[str],
    shared: Load,
    transports: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topology, program = shared("topology"), shared("program")
    monkeypatch.setattr(topology, "links", lambda gpus: (topology.Links(*links), None))
    ways = transports.between([f"a:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via {way}\n"])
    assert program._check_ways(ways, [{}, {}]).least == (min(links[0]) or 1)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {line["name"] for line in lines} == {"transport", "topology", "links"}
    assert {line["name"] for line in lines if not line["ok"]} == failed


def test_a_transport_that_is_not_known_is_not_reported(
    shared: Load,
    transports: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topology, program = shared("topology"), shared("program")
    monkeypatch.setattr(topology, "links", lambda gpus: (None, "no NVIDIA driver here"))
    program._check_ways(transports.between([]), [{}, {}])
    names = [line for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    skipped = {json.loads(line)["name"] for line in names}
    assert skipped == {"topology", "links"}
