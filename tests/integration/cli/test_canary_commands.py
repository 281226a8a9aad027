"""``compatgate canary`` on the local database."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from canary_runs import DRIVER, GPU, evidence, host

from compatgate.canary.engine import BaselineKey
from compatgate.canary.judge.result import Samples
from compatgate.canary.run import Report, StepResult, Witness
from compatgate.canary.workload import MetricSpec
from compatgate.kit.database.database import ENVIRONMENT
from compatgate.kit.principal import Authorship
from compatgate.service.app import Rooms, open_rooms

Run = Callable[..., tuple[int, str, str]]
IMAGE = ("--image", "registry.example/team/app:1")
ASK = ("canary", "run", "--suite", "smoke", "--target", "lab", *IMAGE, "--detach")


@pytest.fixture
def rooms(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Rooms]:
    """The database that the commands use, with a target and a host."""
    monkeypatch.setenv(ENVIRONMENT, str(tmp_path / "gate.db"))
    monkeypatch.delenv("COMPATGATE_SERVER", raising=False)
    opened = open_rooms(overlays=[])
    pools = [{"name": "a", "gpu": GPU, "driver": DRIVER}]
    target = {"metadata": {"name": "lab"}, "spec": {"pools": pools}}
    opened.matrix.create("Target", target, Authorship("t", "t"))
    opened.runs.queue.register("w1", [host()])
    yield opened
    opened.close()


@pytest.fixture
def run(command: Run, rooms: Rooms) -> Run:
    """Run a command line on the database: exit status, output, errors."""
    return command


def queued(run: Run, *more: str) -> str:
    status, out, err = run(*ASK, *more, "--format", "json")
    assert status == 0, err
    return str(json.loads(out)[0]["id"])


def test_a_run_is_queued_listed_shown_and_cancelled(run: Run, rooms: Rooms) -> None:
    run_id = queued(run, "--stack", "cuda=12.4,torch=2.4.1+cu124", "--priority", "3")
    (listed,) = json.loads(run("canary", "list", "--format", "json")[1])
    assert (listed["id"], listed["priority"], listed["stack"]["cuda"]) == (run_id, 3, "12.4")
    lease = rooms.runs.queue.lease("w1", [host()])
    assert lease
    rooms.runs.queue.record(lease, StepResult("gemm-0", "gemm", 0, "failed", "too slow"))
    out = run("canary", "show", run_id)[1]
    assert "stack      cuda=12.4,torch=2.4.1+cu124" in out
    assert "gemm-0  failed   -     too slow" in out
    assert "(cancelling)" in run("canary", "cancel", run_id)[1]
    rooms.runs.queue.finish(lease, "cancelled", "", None)
    assert json.loads(run("canary", "show", run_id, "--format", "json")[1])["state"] == "cancelled"


def test_a_metric_is_shown_beside_the_published_peak_with_its_source(
    run: Run, rooms: Rooms
) -> None:
    run_id = queued(run)
    lease = rooms.runs.queue.lease("w1", [host()])
    assert lease
    metric = {"name": "bf16", "unit": "TFLOP/s", "values": [249.6, 250.1, 249.0]}
    report = {"env": {"gpus": [{"name": "NVIDIA A100-SXM4-80GB"}]}, "metrics": [metric]}
    rooms.runs.queue.record(lease, StepResult("gemm-0", "gemm", 0, "passed", report=report))
    out = run("canary", "show", run_id)[1]
    said = "249.6 TFLOP/s, 80 % of the published dense bf16 peak of A100-SXM4-80GB, 312 TFLOP/s"
    assert f"gemm-0 bf16: {said}\n    source: NVIDIA A100 datasheet" in out


def test_what_the_worker_saw_is_shown_with_what_it_could_not_see(run: Run, rooms: Rooms) -> None:
    run_id = queued(run)
    lease = rooms.runs.queue.lease("w1", [host()])
    assert lease
    witness = Witness("challenged", not_witnessed={"gpu": "NVML does not answer"})
    lied = Witness("witnessed", interpreter="worker", contradictions=("it lasted 2 s",))
    for name, seen in (("a-0", witness), ("b-0", lied)):
        body = msgspec.to_builtins(Report(witness=seen))
        rooms.runs.queue.record(lease, StepResult(name, "gemm", 0, "passed", report=body))
    out = run("canary", "show", run_id)[1]
    assert "a-0 is challenged, by the image's interpreter\n    not witnessed: gpu: NVML" in out
    assert "b-0 is witnessed, by the worker's interpreter\n    contradicted: it lasted 2 s" in out


def test_what_a_step_printed_cannot_command_the_terminal(run: Run, rooms: Rooms) -> None:
    run_id = queued(run)
    lease = rooms.runs.queue.lease("w1", [host()])
    assert lease
    rooms.runs.queue.write(lease, "a-0", b"\x1b[2Jred\n\tindented \xff\n")
    rooms.runs.queue.finish(lease, "passed", "", None)
    for arguments in (("logs", run_id), ("logs", "-f", run_id)):
        status, out, _ = run("canary", *arguments)
        assert status == 0
        assert out == "==> a-0, attempt 1 <==\n\ufffd[2Jred\n    indented \ufffd\n"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--suite", "smok"), "did you mean smoke"),
        (("--target", "la"), "did you mean lab"),
        (("--pool", "b"), "has no pool 'b'"),
        (("--host", "h"), "no worker has registered the host 'h'"),
        (("--stack", "cuda"), "is not name=version"),
        (("--stack", "cuda=x"), "stack.cuda"),
        (("--image", "A/B"), "lower case"),
        (("--priority", "5000"), "from -1000 to 1000"),
        (("--server", "x"), "is not a URL"),
        (("--priority", "high"), "invalid int"),
    ],
)
def test_bad_input_ends_with_2_and_says_why(run: Run, options: tuple[str, str], says: str) -> None:
    asked = {"--suite": "smoke", "--target": "lab"} | dict([options])
    status, _, err = run("canary", "run", *(word for pair in asked.items() for word in pair))
    assert (status, says in err) == (2, True), err


def test_warnings_and_promotion_are_shown_beside_an_entry(run: Run, rooms: Rooms) -> None:
    spec: dict[str, Any] = {"targets": ["lab"], "components": {"cuda": "12.4.*"}}
    body = {"metadata": {"name": "new"}, "spec": {**spec, "status": "candidate"}}
    rooms.matrix.create("Entry", body, Authorship("t", "t"))
    out = run("matrix", "show", "new")[1]
    assert f"# not passed yet: suite smoke for lab on {GPU}, driver {DRIVER}\n" in out
    for outcome in ("passed", "failed"):
        queued(run)
        lease = rooms.runs.queue.lease("w1", [host()])
        assert lease
        rooms.runs.queue.finish(lease, outcome, "", evidence(lease, outcome))  # type: ignore[arg-type]
        if outcome == "passed":
            assert f"# ready for approval: {lease.run.id} passed" in run("matrix", "show", "new")[1]
            body["spec"]["status"] = "blessed"
            rooms.matrix.change("Entry", "new", body, Authorship("t", "approved"))
    assert "# warning since " in run("matrix", "show", "new")[1]
    (shown,) = json.loads(run("matrix", "show", "new", "--format", "json")[1])
    assert shown["warnings"][0]["suite"] == "smoke"


def test_baselines_are_listed_shown_and_approved(run: Run, rooms: Rooms) -> None:
    values = Samples("latency", "ms", (tuple(1 + index / 100 for index in range(30)),))
    ground = BaselineKey("gemm@0f3c", GPU, "torch-2.4-cu12")
    specs = {"latency": MetricSpec("ms", "lower")}
    for number in (0, 1, 3):
        rooms.baselines.offer(ground, specs, f"run_{number}:gemm-0", [values])
    (row,) = json.loads(run("canary", "baselines", "list", "--format", "json")[1])
    number = str(row["id"])
    assert "gemm@0f3c" in run("canary", "baselines", "list")[1]
    out = run("canary", "baselines", "show", number)[1]
    assert "90 values of 3 runs, in ms: min 1 median 1.145" in out
    assert "####" in out
    assert "approved" in run("canary", "baselines", "approve", number)[1]
    newer = BaselineKey(ground.workload, ground.sku, f"{ground.family}+cuda-12.4")
    values = Samples("latency", "ms", (tuple(2 * value for value in values.values),))
    rooms.baselines.offer(newer, specs, "run_2:gemm-0", [values])
    listed = json.loads(run("canary", "baselines", "list", "--format", "json")[1])
    out = run("canary", "baselines", "show", str(listed[0]["id"]))[1]
    assert f"the nearest family is {ground.family} ({number})" in out
    assert "this is +100.0%, to compare, never to judge by" in out
    status, _, err = run("canary", "baselines", "approve", number)
    assert (status, "is approved by" in err) == (2, True)
    assert run("canary", "baselines", "show", "99")[0] == 2
    assert "refused" in run("canary", "baselines", "refuse", number)[1]
    status, _, err = run("canary", "baselines", "refuse", number)
    assert (status, "is refused" in err) == (2, True)


def test_explained_values_replace_those_before_them(run: Run, rooms: Rooms) -> None:
    specs = {"latency": MetricSpec("ms", "lower")}
    ground = BaselineKey("gemm@0f3c", GPU, "torch-2.4")

    def offer(number: int, factor: float, explained: str = "") -> str:
        values = tuple(factor * (1 + i / 1000) for i in range(30))
        found = [Samples("latency", "ms", (values,), explained=explained)]
        rooms.baselines.offer(ground, specs, f"run_{number}:gemm-0", found)
        listed = json.loads(run("canary", "baselines", "list", "--format", "json")[1])
        return str(listed[0]["id"])

    def learnt_from(number: str) -> list[str]:
        shown = run("canary", "baselines", "show", number, "--format", "json")[1]
        return [one["run"].partition(":")[0] for one in json.loads(shown)["runs"]]

    first = [offer(number, 10) for number in (1, 2, 3)][-1]
    assert run("canary", "baselines", "approve", first)[0] == 0
    better = [offer(number, 1, "FP8 replaces FP16") for number in (4, 5, 6)][-1]
    assert learnt_from(better) == ["run_4", "run_5", "run_6"]
    out = run("canary", "baselines", "approve", better)[1]
    assert "explained: FP8 replaces FP16" in out
    assert rooms.baselines.approved(ground)["latency"].explained == "FP8 replaces FP16"
    later = offer(7, 1)
    assert learnt_from(later) == ["run_4", "run_5", "run_6", "run_7"]
    assert run("canary", "baselines", "approve", later)[0] == 0


def test_all_baselines_of_a_run_are_approved_at_once(run: Run, rooms: Rooms) -> None:
    specs = {name: MetricSpec("ms", "lower") for name in ("latency", "warm", "cold")}
    mine = [(f"run_{number}:gemm-0", ["latency", "warm"]) for number in (3, 2, 1)]
    for at, names in (*mine, ("run_10:gemm-0", ["cold"])):
        found = [Samples(n, "ms", (tuple(1 + i / 100 for i in range(30)),)) for n in names]
        rooms.baselines.offer(BaselineKey("gemm@0f3c", GPU, "torch-2.4"), specs, at, found)
    status, out, _ = run("canary", "baselines", "approve", "--all-of", "run_1")
    assert (status, out.count("approved"), "cold" in out) == (0, 2, False)
    listed = json.loads(run("canary", "baselines", "list", "--format", "json")[1])
    assert {b["metric"]: b["state"] for b in listed} == {
        "latency": "approved", "warm": "approved", "cold": "proposed"
    }  # fmt: skip
    status, _, err = run("canary", "baselines", "approve", "--all-of", "run_1")
    assert (status, "no proposed baseline has values of run run_1" in err) == (2, True)
    for options in ((), ("1", "--all-of", "run_10")):
        assert run("canary", "baselines", "approve", *options)[0] == 2


def test_hosts_show_their_slots_and_quiet_hours(run: Run, rooms: Rooms) -> None:
    queued(run)
    rooms.runs.queue.lease("w1", [host()])
    out = run("canary", "hosts")[1]
    assert f"a100-1  docker    {GPU}  {DRIVER}  4 of 4  w1" in out
    assert json.loads(run("canary", "hosts", "--gpu", "L4", "--format", "json")[1]) == []


def test_a_fleet_run_asks_each_host_and_names_the_slow_one(run: Run, rooms: Rooms) -> None:
    names = [f"n{number}" for number in range(5)]
    rooms.runs.queue.register("w1", [host(name) for name in names])
    fleet = ("canary", "fleet", "--suite", "dl-core", "--target", "lab", *IMAGE, "--detach")
    status, out, err = run(*fleet, *(word for name in names for word in ("--host", name)))
    assert status == 0, err
    ids = out.split()
    for number in range(len(names)):
        lease = rooms.runs.queue.lease("w1", [host(names[number])])
        assert lease
        values = [(250.0 if number != 3 else 200.0) + each / 10 for each in range(8)]
        report = {"metrics": [{"name": "bf16", "unit": "TFLOP/s", "values": values}]}
        rooms.runs.queue.record(lease, StepResult("gemm-0", "gemm", 0, "passed", report=report))
        rooms.runs.queue.finish(lease, "passed", "", evidence(lease))
    status, out, err = run("canary", "fleet", "--runs", *ids)
    assert (status, "slow: n3" in out) == (1, True), err
    first = out.splitlines()[1].split()
    assert first[:3] == ["n3", "SLOW", "gemm-0/bf16"]
    assert f"canary fleet --runs {ids[0]}" in err
    status, out, err = run("canary", "fleet", "--runs", *ids, "--format", "json")
    assert json.loads(out)["slow"] == ["n3"]
    assert run("canary", "fleet", "--runs", *ids[:2])[0] == 3
    status, _, err = run("canary", "fleet", "--suite", "dl-core", "--target", "lab", "--host", "n9")
    assert (status, "no worker has registered the host 'n9'" in err) == (2, True)
    assert run("canary", "fleet", "--suite", "dl-core")[0] == 2


def test_a_report_is_imported_from_a_file_and_refused_with_its_name(
    run: Run, rooms: Rooms, tmp_path: Path
) -> None:
    report = tmp_path / "results.jsonl"
    report.write_text('{"type": "env", "host": "n1"}\n{"type": "check", "name": "a", "ok": true}\n')
    take = ("canary", "import", str(report), "--source", "lab", "--target", "lab")
    stated = ("--driver", DRIVER, "--measured-at", "2026-01-02", "--stack", "cuda=12.4")
    status, out, err = run(*take, *stated, "--json")
    assert status == 0, err
    (made,) = json.loads(out)
    assert (made["source"], made["gpu"], made["state"]) == ("jsonl@lab", GPU, "passed")
    status, _, err = run(*take, *stated)
    assert (status, "results.jsonl: already imported" in err) == (2, True)
    status, _, err = run(*take)
    assert (status, "the report names no driver" in err) == (2, True)
    report.write_bytes(b"\xff\xfe")
    assert run(*take)[0] == 2
    assert run("canary", "import", str(tmp_path / "none"), "--source", "lab")[0] == 2
    assert "jsonl@lab" in run("canary", "list", "--purpose", "import")[1]
    assert run("canary", "rerun", made["id"])[0] == 2
