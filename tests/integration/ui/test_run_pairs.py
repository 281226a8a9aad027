"""The page of a run that compares candidate and reference in pairs."""

import random
import re
import time

import msgspec
from canary_runs import DRIVER, GPU
from msgspec.structs import replace

from compatgate.canary.engine.pair_results import BlockRecord, describe_state, judge_record
from compatgate.canary.engine.steps import plan_steps
from compatgate.canary.run import BlockPosition, Device, Env, Metric, Report, StepResult
from compatgate.core.binding import Binding
from compatgate.core.matrix import Evidence
from compatgate.core.versions import parse_version
from compatgate.kit.principal import Authorship

REFERENCE = "registry.example/team/app@sha256:" + "a" * 64
MARKUP = "<script>alert(1)</script>"


def record_pairs(rooms, lease, pairs, ratio=1.12, broken=""):
    """Blocks as a worker records them: the candidate is slower, and loads another cuDNN."""
    (workload,) = rooms.runs.catalogue().of_suite("conv-only")
    (step,) = plan_steps([workload])
    record = BlockRecord([step])
    for pair in range(1, pairs + 1):
        for arm in "AB":
            rng = random.Random(f"{pair}{arm}")
            level = 8.0 * (ratio if arm == "B" else 1.0) * rng.lognormvariate(0, 0.004)
            times = tuple(level * rng.lognormvariate(0, 0.002) for _ in range(6))
            rates = tuple(64000 / time for time in times)
            cudnn = "9.1.0.70" if arm == "A" else "9.5.1.17"
            env = Env("535.183.01", (Device("NVIDIA A100-SXM4-80GB"),), {"cudnn": cudnn})
            metrics = Metric("step-time", "ms", times), Metric("throughput", "images/s", rates)
            body = msgspec.to_builtins(Report(env, metrics))
            name = f"conv-forward-0-pair{pair}-{arm}"
            bad = bool(broken) and (pair, arm) == (pairs, "A")
            result = StepResult(
                name, workload.name, 0, "failed" if bad else "passed", broken if bad else "",
                report=body, block=BlockPosition(arm, pair, 1),
            )  # fmt: skip
            record.add(step, result)
            rooms.runs.queue.record(lease, result)
    judged = judge_record(record, {})
    images = {"A": REFERENCE, "B": REFERENCE.replace("a" * 64, "b" * 64)}
    rooms.runs.queue.compare(lease, describe_state(record, judged, images, ()))
    return judged


def begin(ran, image="registry.example/team/app:2"):
    return ran.begin(image=image, against=REFERENCE)


def _first_row(text):
    """Return change, interval and tolerance of the first compared metric, in percent."""
    row = re.search(r'aria-label="Compared metrics".*?<tbody>\s*<tr>(.*?)</tr>', text, re.DOTALL)[1]
    change, interval, tolerance = re.findall(r"<td[^>]*>(-?[\d.]+(?: to -?[\d.]+)?)</td>", row)[:3]
    return [float(change), *map(float, interval.split(" to ")), float(tolerance)]


def test_pairs_are_shown_with_the_interval_against_the_tolerance(run_pages, ran):
    lease = begin(ran)
    judged = record_pairs(ran.rooms, lease, 5)
    assert judged.outcome == "failed"
    text = run_pages().get(f"/ui/runs/{lease.run.id}").text
    figures = re.findall(r'<figure data-chart="line".*?</figure>', text, re.DOTALL)
    rows = [re.findall(r'<tr>(<td data-value="\d+">.*?)</tr>', one) for one in figures]
    assert [len(one) for one in rows] == [5, 5], "five pairs of both metrics"
    for metric, pairs in zip(re.findall(r"<h3>(conv-forward\S+)", text), rows, strict=True):
        values = [list(map(float, re.findall(r'data-value="([^"]+)"', row))) for row in pairs]
        assert [pair for pair, _, _ in values] == [1, 2, 3, 4, 5]
        assert all((b > a) == ("step-time" in metric) for _, a, b in values)
    change, low, high, tolerance = _first_row(text)
    assert tolerance < min(abs(low), abs(high)) <= abs(change), "beyond the tolerance"
    page = " ".join(text.split())
    assert "<code>9.1.0.70</code></td><td><code>9.5.1.17</code>" in page
    assert "conv-forward.step-time" in page
    assert "5 pairs as a table" in page
    body = run_pages().get(f"/api/v1/runs/{lease.run.id}").json["pairs"]
    assert (body["outcome"], body["done"], len(body["blocks"])) == ("failed", 5, 10)


def test_what_breaks_a_pair_is_shown_as_text(run_pages, ran):
    lease = begin(ran)
    record_pairs(ran.rooms, lease, 2, broken=MARKUP)
    text = run_pages().get(f"/ui/runs/{lease.run.id}").text
    assert MARKUP not in text
    assert "conv-forward-0-pair2-A failed: &lt;script&gt;" in text
    assert "1 of 5 or more" in " ".join(text.split())


def test_a_run_without_a_reference_says_so(run_pages, ran):
    run = ran.submit(image="registry.example/team/app:2")
    text = " ".join(run_pages().get(f"/ui/runs/{run}").text.split())
    assert "<dt>Compared with</dt><dd>none: " in text or "<dt>Compared with</dt><dd><a" in text
    assert 'id="pairs"' not in text


def test_evidence_shows_what_its_pairs_found_on_run_and_verdict(run_pages, ran):
    rooms, lease = ran.rooms, begin(ran)
    record_pairs(rooms, lease, 5)
    found = Evidence(
        lease.run.id, "conv-only", GPU, parse_version("driver", DRIVER),
        {"cuda": parse_version("cuda", "12.4")}, "failed", 0, bound=Binding(host="a"),
    )  # fmt: skip
    rooms.runs.queue.finish(lease, "failed", "slower", replace(found, finished=int(time.time())))
    words = "worst of 2 metrics, 5 pairs"
    page = " ".join(run_pages().get(f"/ui/runs/{lease.run.id}").text.split())
    assert "<dt>Reference</dt>" in page
    assert 'title="sha256:' + "a" * 64 in page
    assert re.search(
        rf"<dt>Change</dt><dd>conv-forward\.\S+ [+-]1\d\.\d %, interval .*{words}", page
    )

    pool = {"name": "a100", "gpu": GPU, "driver": DRIVER}
    policy = {"canary": {"require": True, "suites": ["conv-only"], "bind": "versions"}}
    spec = {"pools": [pool], "policy": policy}
    rooms.matrix.create(
        "Target", {"metadata": {"name": "paired"}, "spec": spec}, Authorship("t", "t", force=True)
    )
    question = {"target": "paired", "stack": {"cuda": "12.4", "arch": ["sm_80"]}}
    verdict = rooms.gate.decide(question, asked_by="t", source="test")
    assert lease.run.id in verdict.evidence
    page = " ".join(run_pages().get(f"/ui/verdicts/{verdict.id}").text.split())
    assert "Against a named image: conv-forward." in page
    assert words in page
