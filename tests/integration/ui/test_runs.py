"""Runs as the server shows them, and what its forms do."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from ui_marks import form_token, post
from ui_runs import HOSTILE, PASSED, QUEUED, SICK, SLOWER

from compatgate.canary.judge.workload import judge_reports
from compatgate.canary.run import Check, Device, Env, Metric, Report, StepResult, Witness
from compatgate.canary.workload import MetricSpec
from compatgate.kit import clock
from compatgate.service.runs.queue.pruning import PruneAges, prune_database
from compatgate.service.runs.queue.schemas import ImportRequest, RunRequest

MARKUP = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


def ids(ran, **filters):
    return [run.id for run in ran.rooms.runs.list(**filters).items]


def test_the_list_is_narrowed_sorted_and_exported(kept_pages, kept):
    client = kept_pages()
    text = client.get("/ui/runs?state=failed&suite=&sort=-took").text
    assert all(run in text for run in ids(kept, state="failed"))
    assert not any(run in text for run in ids(kept, state="passed"))
    lines = client.get("/ui/runs?format=csv").text.splitlines()
    assert lines[0].startswith("Run,State,Suite")
    assert len(lines) == 1 + len(ids(kept))


def test_runs_are_told_apart_by_what_they_are_for(run_pages, ran):
    again = ran.rooms.runs.rerun(PASSED, by="worker", purpose="verification")[0].id
    client = run_pages()
    verified = client.get("/ui/runs?purpose=verification").text
    assert again in verified
    assert "by worker, to verify again" in verified
    assert PASSED not in verified
    assert again not in client.get("/ui/runs?purpose=request").text
    listed = client.get("/api/v1/runs?purpose=verification").json["items"]
    assert [run["id"] for run in listed] == [again]


def test_an_imported_run_is_shown_with_its_source_and_is_not_run_again(run_pages, ran):
    report = '{"type": "env", "host": "<b>n1"}\n{"type": "check", "name": "a", "ok": true}\n'
    stated = {"sku": "A100-SXM4-80GB", "driver": "535.183.01", "file": "<i>.jsonl"}
    when = clock.now() - timedelta(days=1)
    asked = ImportRequest(report, source="lab", measured_at=when, **stated)
    (made,) = ran.rooms.runs.import_report(asked, by="anna")
    client = run_pages()
    listed = client.get("/ui/runs?purpose=import").text
    assert ("jsonl@lab" in listed, made.id in listed, PASSED in listed) == (True, True, False)
    page = client.get(f"/ui/runs/{made.id}").text
    assert "No worker of this gate measured this result." in page
    assert "sku, driver, measured_at" in page
    assert ("&lt;b&gt;n1" in page, "&lt;i&gt;.jsonl" in page) == (True, True)
    assert ("<b>n1" in page, "Run again" in page) == (False, False)


@pytest.mark.parametrize(
    "query", ["state=good", "since=yesterday", "nonsense=1", "sort=nothing", "cursor=x"]
)
def test_a_bad_filter_says_what_is_wrong(kept_pages, query):
    answer = kept_pages().get(f"/ui/runs?{query}")
    assert answer.status_code == 400
    assert query.partition("=")[0] in answer.text


def test_only_what_is_under_way_is_asked_for_again(kept_pages):
    client = kept_pages()
    assert "every 3s" in client.get("/ui/runs").text
    assert "every 3s" not in client.get("/ui/runs?state=ended").text


def test_a_filter_that_nothing_fits_says_so(kept_pages):
    text = kept_pages().get("/ui/runs?entry=nothing-of-that-name").text
    assert "No matches." in text


def test_no_run_yet_teaches_how_to_start_one(pages):
    assert "compatgate canary run --suite smoke --target" in pages().get("/ui/runs").text


@pytest.mark.parametrize(
    "path",
    [
        "runs/run_0",
        "runs/run_0/log",
        "runs/run_0/state",
        "runs/run_0/steps/x",
        "baselines/999",
        "workloads/none",
        "baselines/x",
    ],
)
def test_what_is_not_there_is_not_found(kept_pages, path):
    assert kept_pages().get(f"/ui/{path}").status_code == 404


def test_a_failed_run_says_what_changed_and_how_sure_that_is(kept_pages, kept):
    text = kept_pages().get(f"/ui/runs/{SLOWER}").text
    assert "With 98 % confidence the change lies between" in text
    assert "all of it beyond the tolerance" in text
    assert "Policies ignore such development runs" in text
    assert "baseline 1</a>" in text
    assert "The last 6 runs of this step" in text


def test_what_was_asked_stands_beside_what_was_measured(kept_pages, kept):
    text = kept_pages().get(f"/ui/runs/{SLOWER}").text.partition("<body>")[2]
    assert "<code>9.1.1.17</code>" in text
    assert text.count("is-same") == 5


def test_a_gpu_that_fell_off_the_bus_is_named_with_what_to_do(kept_pages, kept):
    text = kept_pages().get(f"/ui/runs/{SICK}").text
    assert "Xid 79" in text
    assert "is-sick" in text
    assert "restart the bare-metal machine" in text
    assert "This run does not count as evidence" in text


def test_a_hostile_log_is_text(kept_pages, kept):
    client, run = kept_pages(), SICK
    text = client.get(f"/ui/runs/{run}").text
    assert "<script>window" not in text
    assert "<img src=x" not in text
    assert "\x1b" not in text
    assert "\x00" not in text
    assert "\u202e" not in text
    assert "x" * 20_000 in text


def test_a_log_that_was_removed_is_said_to_be(run_pages, ran):
    lease = ran.begin()
    ran.rooms.runs.queue.write(lease, "conv-forward-0", b"first\n")
    ran.rooms.runs.queue.finish(lease, "inconclusive", "the test ends", None)
    prune_database(ran.rooms.gate.database, PruneAges(logs=timedelta(seconds=-1)), by="keeper")
    link = ran.rooms.audit.list_audit(action="prune.logs").items[0].seq
    text = run_pages().get(f"/ui/runs/{lease.run.id}").text
    assert (
        f'by keeper: see <a href="/ui/audit?action=prune.logs">record {link} of the audit' in text
    )
    assert "No output." not in text


def test_the_log_is_followed_from_where_it_was(run_pages, ran):
    client, lease = run_pages(), ran.begin()
    queue, at = ran.rooms.runs.queue, f"/ui/runs/{lease.run.id}/log"
    queue.write(lease, "conv-forward-0", b"first\n")
    one = client.get(at).json
    assert one["text"] == "==> conv-forward-0, attempt 1 <==\nfirst\n"
    assert not one["ended"]
    queue.write(lease, "conv-forward-0", HOSTILE)
    two = client.get(f"{at}?after={one['after']}").json
    assert two["text"].startswith("<img src=x onerror")
    assert "\x1b" not in two["text"]
    queue.finish(lease, "inconclusive", "the test ends", None)
    assert client.get(f"{at}?after={two['after']}").json == {**two, "text": "", "ended": True}


@pytest.mark.parametrize("query", ["after=-1", "after=x", "after=99999999999999999999", "step=x"])
def test_a_bad_place_in_the_log_is_refused(kept_pages, kept, query):
    assert kept_pages().get(f"/ui/runs/{ids(kept)[0]}/log?{query}").status_code == 400


def test_what_a_run_is_asked_for_is_text(run_pages, ran):
    asked = RunRequest("hello", host="builder-1", stack={"python": "3.11"}, image=None)
    (run,) = ran.rooms.runs.submit(asked, by=MARKUP)
    client = run_pages("read", "operate")
    query = f"suite={MARKUP}&stack={MARKUP}&image={MARKUP}&target={MARKUP}&host={MARKUP}"
    paths = ("runs", f"runs/{run.id}", f"runs/new?{query}", f"runs/compare?a={MARKUP}&b={MARKUP}")
    paths += (f"runs?entry={MARKUP}", f"baselines?sku={MARKUP}", f"workloads/{MARKUP}")
    for path in paths:
        text = client.get(f"/ui/{path}").text
        assert "<script>alert" not in text, path
        assert "<img src=x" not in text, path


def measured(names, **fields):
    """A step that measured these metrics, as a worker records it."""
    values = tuple(8 + i / 100 for i in range(40))
    metrics = tuple(Metric(name, fields.pop("unit", "ms"), values) for name in names)
    env = fields.pop("env", Env(versions={"cuda": "12.4.1"}))
    report = Report(env, metrics, fields.pop("checks", ()), witness=fields.pop("witness", None))
    specs = {name: MetricSpec("ms", "lower") for name in names}
    return StepResult(
        "conv-forward-0",
        "conv-forward",
        0,
        "failed",
        report=msgspec.to_builtins(report),
        judgement=msgspec.to_builtins(judge_reports(specs, [], [report], {})),
        **fields,
    )


def test_what_a_step_reports_is_text(run_pages, ran):
    lease = ran.begin()
    env = Env(
        driver=MARKUP,
        gpus=(Device(MARKUP, uuid=MARKUP, mig=MARKUP),),
        versions={MARKUP: MARKUP, "cuda": MARKUP},
        paths={MARKUP: MARKUP},
        other={MARKUP: MARKUP},
    )
    checks = (Check(MARKUP, False, MARKUP),)
    words = {MARKUP: MARKUP}
    witness = Witness(seen=words, not_witnessed=words, contradictions=(MARKUP,))
    named = {"reason": MARKUP, "image": MARKUP, "unit": MARKUP}
    step = measured([MARKUP], env=env, checks=checks, witness=witness, **named)
    ran.rooms.runs.queue.record(lease, step)
    ran.rooms.runs.queue.say(lease, MARKUP, 0.5)
    client = run_pages()
    run = lease.run.id
    for path in ("runs", f"runs/{run}", f"runs/{run}/state", f"runs/{run}/steps/conv-forward-0"):
        answer = client.get(f"/ui/{path}")
        assert answer.status_code == 200
        assert "<script>alert" not in answer.text, path
        assert "<img src=x" not in answer.text, path
    compared = client.get(f"/ui/runs/compare?a={run}&b={run}")
    assert compared.status_code == 200
    assert "<script>alert" not in compared.text


def test_a_step_says_what_the_worker_saw_and_what_it_could_not(run_pages, ran):
    lease = ran.begin()
    witness = Witness(
        "challenged",
        wall_s=2.5,
        signed=7,
        proofs=("python",),
        seen={"processes": "1: /usr/bin/python3"},
        not_witnessed={"gpu": "NVML does not answer"},
    )
    ran.rooms.runs.queue.record(lease, measured(["time"], witness=witness))
    page = " ".join(run_pages().get(f"/ui/runs/{lease.run.id}").text.split())
    assert "7; challenge answered by python" in page
    assert "<td>yes</td><td>1: /usr/bin/python3</td>" in page
    assert "<td>no</td><td>NVML does not answer</td>" in page


def test_a_metric_stands_beside_the_published_peak_of_its_gpu(run_pages, ran):
    lease = ran.begin()
    metrics = Metric("bf16", "TFLOP/s", (250.0,) * 30), Metric("fp16", "TFLOP/s", (624.0,) * 30)
    report = Report(Env("535.183.01", (Device("NVIDIA A100-SXM4-80GB"),)), metrics)
    body = msgspec.to_builtins(report)
    ran.rooms.runs.queue.record(lease, StepResult("gemm-0", "gemm", 0, "passed", report=body))
    page = " ".join(run_pages().get(f"/ui/runs/{lease.run.id}").text.split())
    assert "250 TFLOP/s, 80 % of the published dense bf16 peak of A100-SXM4-80GB" in page
    assert 'class="tone-warn">624 TFLOP/s, 200 % of the published' in page
    assert 'href="/ui/facts/gpu_peaks/A100-SXM4-80GB"' in page


def test_many_metrics_are_listed_and_drawn_on_the_steps_own_page(run_pages, ran):
    lease = ran.begin()
    ran.rooms.runs.queue.record(lease, measured([f"metric-{i}" for i in range(24)]))
    client, run = run_pages(), lease.run.id
    text = client.get(f"/ui/runs/{run}").text
    assert "<figure" not in text
    assert f'/ui/runs/{run}/steps/conv-forward-0#m-conv-forward-0-metric-7"' in text
    step = client.get(f"/ui/runs/{run}/steps/conv-forward-0").text
    assert step.count("<figure") == 24
    assert client.get(f"/ui/runs/{run}/steps/conv-forward").status_code == 404


def test_a_run_is_submitted(run_pages, ran):
    client = run_pages("read", "operate")
    fields = {"suite": "conv-only", "target": "prod-a100", "stack": "cuda=12.4", "priority": "7"}
    answer = post(client, "runs/new", **fields)
    assert answer.status_code == 303
    made = ran.rooms.runs.list(limit=1).items[0]
    assert answer.headers["Location"] == f"/ui/runs/{made.id}"
    assert (made.asked_by, made.priority, made.stack) == ("read-operate", 7, {"cuda": "12.4"})
    assert "Queued the run." in client.get(answer.headers["Location"]).text


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"suite": ""}, "Choose a suite"),
        ({"suite": "dl-cor"}, "does not exist"),
        ({"target": "inference-l4", "pool": ""}, "on staging-l4: "),
        ({"stack": "cuda 12"}, "is not name=version"),
        ({"stack": "cuda=twelve"}, "stack.cuda"),
        ({"target": "prod-a10"}, "prod-a10"),
        ({"pool": "nothing"}, "has no pool"),
        ({"host": "nothing"}, "No worker has registered"),
        (
            {"target": "inference-l4", "pool": "", "host": "builder-1"},
            "No staging host can run it",
        ),
        ({"priority": "high"}, "is not a whole number"),
        ({"priority": "1001"}, "Out of range"),
        ({"image": "::"}, "image"),
        ({"entry": MARKUP}, "does not exist"),
    ],
)
def test_a_wrong_form_says_why_and_keeps_what_was_typed(kept_pages, kept, fields, said):
    before = ids(kept)
    given = {"suite": "conv-only", "target": "prod-a100", "stack": "cuda=12.4", "pool": "a100-80"}
    answer = post(kept_pages("operate", "read"), "runs/new", **{**given, **fields})
    assert answer.status_code in (400, 404)
    assert said in answer.text
    assert '<option value="conv-only" selected>' in answer.text or "suite" in fields
    assert 'value="a100-80"' in answer.text or "pool" in fields
    assert "<script>alert" not in answer.text
    assert ids(kept) == before


@pytest.mark.parametrize(
    ("path", "scopes"),
    [
        ("runs/new", ("read", "bless")),
        ("runs/{run}/cancel", ("read", "bless")),
        ("runs/{run}/rerun", ("read", "bless")),
        ("baselines/3/approve", ("read", "operate")),
    ],
)
def test_what_the_scopes_do_not_allow_is_neither_shown_nor_done(kept_pages, kept, path, scopes):
    client, run = kept_pages(*scopes), ids(kept)[0]
    assert post(client, path.format(run=run)).status_code == 403
    page = "baselines/3" if "baselines" in path else f"runs/{run}"
    assert f'action="/ui/{path.format(run=run)}"' not in client.get(f"/ui/{page}").text
    assert kept_pages().post(f"/ui/{path.format(run=run)}").status_code in (401, 403)


def test_a_form_of_another_site_does_nothing(kept_pages, kept):
    client, run = kept_pages("operate", "read"), QUEUED
    assert client.post(f"/ui/runs/{run}/cancel", data={"form_token": "0"}).status_code == 403
    crossed = {"form_token": form_token(client)}
    headers = {"Sec-Fetch-Site": "cross-site"}
    answer = client.post(f"/ui/runs/{run}/cancel", data=crossed, headers=headers)
    assert answer.status_code == 403
    assert kept.rooms.runs.get(run).state == "queued"


def test_a_run_is_cancelled_and_asked_for_again(run_pages, ran):
    client, run = run_pages("read", "operate"), QUEUED
    assert post(client, f"runs/{run}/cancel").headers["Location"] == f"/ui/runs/{run}"
    assert ran.rooms.runs.get(run).state == "cancelled"
    again = post(client, f"runs/{run}/cancel")
    assert again.status_code == 409
    answer = post(client, f"runs/{run}/rerun")
    assert answer.status_code == 303
    assert ran.rooms.runs.list(limit=1).items[0].stack == ran.rooms.runs.get(run).stack


def test_a_run_that_goes_on_is_asked_to_end(run_pages, ran):
    client, lease = run_pages("read", "operate"), ran.begin()
    post(client, f"runs/{lease.run.id}/cancel")
    text = client.get(f"/ui/runs/{lease.run.id}").text
    assert "read-operate requested cancellation." in text
    assert 'value="0.6"' in text
    assert "60 %: conv-forward-0: 24 of 40 repetitions" in text


def test_two_runs_stand_side_by_side(kept_pages, kept):
    slow, good = SLOWER, PASSED
    client = kept_pages()
    text = client.get(f"/ui/runs/compare?a={good}&b={slow}").text.partition("<body>")[2]
    assert (
        text.count("is-regression") == 6
    )  # in the table, once more for a phone, and with the charts
    assert "<code>9.1.1.17</code>" in text
    table = client.get(f"/ui/runs/compare?a={good}&b={slow}&format=csv").text.splitlines()
    assert table[1].startswith("conv-forward-0,step-time,")
    gone = client.get(f"/ui/runs/compare?a={good}&b=run_0")
    assert gone.status_code == 404
    assert "does not exist" in gone.text
    assert "Select two runs." in client.get("/ui/runs/compare").text


def test_a_run_without_steps_stands_beside_one_with(kept_pages, kept):
    queued, good = QUEUED, PASSED
    answer = kept_pages().get(f"/ui/runs/compare?a={queued}&b={good}")
    assert answer.status_code == 200
    assert "no metric in common" in answer.text


def test_a_run_shows_its_pool_and_is_discarded_with_a_reason(run_pages, ran):
    judged = ran.rooms.runs.show(PASSED).evidence
    assert judged is not None
    reader, owner = run_pages(), run_pages("read", "bless")
    shown = reader.get(f"/ui/runs/{PASSED}").text
    assert f"<strong>{judged.words}</strong> of the pooled runs" in shown
    assert "unknown; the run counts by its versions" in shown
    assert "Reason to discard" not in shown
    assert "Reason to discard" in owner.get(f"/ui/runs/{PASSED}").text
    assert post(reader, f"runs/{PASSED}/discard", reason=MARKUP).status_code in (302, 401, 403)
    assert ran.rooms.runs.show(PASSED).evidence.discarded is None
    assert post(owner, f"runs/{PASSED}/discard", reason="").status_code == 400
    assert post(owner, f"runs/{PASSED}/discard", reason=MARKUP).status_code in (302, 303)
    after = reader.get(f"/ui/runs/{PASSED}").text
    assert "discarded the run" in after
    assert MARKUP not in after
    found = reader.get(f"/api/v1/runs/{PASSED}").json["evidence"]
    assert found["discarded"]["reason"] == MARKUP
    assert found["pool"]["judged"] == len(judged.counted) - 1
