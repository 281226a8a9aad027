"""Read reports of ``dcgmi diag -j`` and of nccl-tests, with the readers of canary runs."""

from __future__ import annotations

from msgspec.structs import replace

from compatgate.canary.imports.observation import Observation, find_gpu, make_part
from compatgate.canary.protocol.adapters import ToolOutput
from compatgate.canary.protocol.adapters.dcgm import read_dcgm
from compatgate.canary.protocol.adapters.nccl_tests import read_nccl_tests
from compatgate.canary.protocol.adapters.tool import ToolReader
from compatgate.canary.run import Report
from compatgate.errors import BadInput

_MAX_NAMED = 5


def read_dcgm_diag(text: str) -> list[Observation]:
    """Read the JSON of ``dcgmi diag -j``; its driver is in it, its host and time are not.

    Source: https://github.com/NVIDIA/DCGM, ``testing/python3/dcgm_diag_schema.json``.
    """
    report = _read(text, read_dcgm)
    env = report.env
    version = str(env.other.get("dcgm", "")) if env else ""
    part = make_part("diag", report)
    return [
        Observation(
            tool=f"dcgmi diag {version}".strip(), parts=(part,), driver=env.driver if env else None
        )
    ]


def read_nccl(text: str) -> list[Observation]:
    """Read the output of nccl-tests: its table, or the JSON of ``-J``.

    Its times are local times without a zone, so they are not used.

    Source: https://github.com/NVIDIA/nccl-tests, ``src/util.cu``.
    """
    report = _read(text, read_nccl_tests)
    env = report.env
    other = env.other if env else {}
    hosts = [str(host) for host in other.get("hosts", [])]
    if not any(check.name == "right" for check in report.checks):
        problem = "values were not validated (-c 0), so the report shows no correct result"
        report = replace(report, problems=(*report.problems, problem))
    return [
        Observation(
            tool=f"nccl-tests {other.get('nccl-tests') or ''}".strip(),
            parts=(make_part("nccl-tests", report),),
            host=hosts[0] if len(hosts) == 1 else None,
            nodes=max(1, len(hosts)),
            gpus=max(1, int(other.get("ranks", 1))),
            gpu=find_gpu(env),
            versions=dict(env.versions) if env else {},
        )
    ]


def _read(text: str, read: ToolReader) -> Report:
    """Return the report of a tool's whole output."""
    output = ToolOutput(read)
    # The end of a JSON document shows that it is whole; that of a table is a line feed.
    whole = text + "\n" if text.lstrip().startswith("{") else text
    output.feed(whole.encode())
    report = output.report()
    if not report.metrics and not report.checks and report.problems:
        raise BadInput("; ".join(report.problems[:_MAX_NAMED]), field="file")
    return report
