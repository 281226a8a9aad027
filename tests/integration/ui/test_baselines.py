"""Baselines, staging hosts, suites and workloads as the server shows them."""

from __future__ import annotations

import pytest
from sample_runs import FAMILY, SKU, propose_samples
from ui_marks import post

from compatgate.canary.engine import BaselineKey


def test_what_waits_for_approval_stands_on_top(kept_pages):
    client = kept_pages("read", "bless")
    text = client.get("/ui/baselines").text
    assert text.index("Waiting for approval") < text.index('id="baselines"')
    assert text.count(">Approve</button>") == 3
    narrowed = client.get("/ui/baselines?state=approved&metric=step-time&format=csv").text
    assert len(narrowed.splitlines()) == 2


def test_a_version_shows_its_distribution_its_runs_and_those_before_it(kept_pages):
    text = kept_pages().get("/ui/baselines/3").text
    assert 'data-chart="bars"' in text
    assert text.count('<a href="/ui/runs/run_') == 5  # four it was learned from, one proposed it
    assert "against <a" in text
    assert 'href="/ui/baselines/1"' in text


def test_approving_makes_it_the_one_that_runs_are_judged_against(run_pages, ran):
    client = run_pages("read", "bless")
    answer = post(client, "baselines/3/approve")
    assert answer.headers["Location"] == "/ui/baselines/3"
    assert "runs are judged against version 2" in client.get("/ui/baselines/3").text
    assert ran.rooms.baselines.show(1).state == "replaced"
    assert post(client, "baselines/3/approve").status_code == 409
    assert post(client, "baselines/99/approve").status_code == 404


@pytest.mark.parametrize("query", ["state=good", "sort=nothing", "nonsense=1"])
def test_a_bad_filter_says_what_is_wrong(kept_pages, query):
    assert kept_pages().get(f"/ui/baselines?{query}").status_code == 400


def test_no_baseline_yet_says_how_there_comes_one(pages):
    assert "The first valid run of a workload" in pages().get("/ui/baselines").text


def test_hosts_are_shown_with_their_quiet_hours(kept_pages):
    client = kept_pages()
    text = client.get("/ui/hosts").text
    assert "20:00 to 06:00 Europe/Berlin, mon, tue, wed, thu, fri" in text
    assert "0 of 2" in text
    assert "staging-a100" not in client.get("/ui/hosts?gpu=L4").text


def test_no_host_yet_teaches_how_to_start_a_worker(pages):
    assert "compatgate worker --hosts hosts.toml" in pages().get("/ui/hosts").text


def test_a_slot_that_a_run_has_is_busy(run_pages, ran):
    ran.begin()
    assert "2 of 2" in run_pages().get("/ui/hosts").text


def test_a_host_that_is_away_says_since_when_and_why_and_so_does_its_run(run_pages, ran):
    lease = ran.begin()
    ran.rooms.runs.queue.report_host(lease.host, "no engine at tcp://a:1; start the engine")
    for path in ("hosts", "runs", f"runs/{lease.run.id}"):
        text = run_pages().get(f"/ui/{path}").text
        assert "away since 20" in text, path
        assert "no engine at tcp://a:1; start the engine" in text
    ran.rooms.runs.queue.report_host(lease.host, "")
    assert "away since" not in run_pages().get("/ui/hosts").text


def test_suites_and_workloads_say_what_they_would_find(kept_pages):
    client = kept_pages()
    assert "Four hours of work on one GPU" in client.get("/ui/suites").text
    assert "gemm" in client.get("/ui/workloads?sort=name&format=csv").text
    text = client.get("/ui/workloads/gemm").text
    assert "results that are wrong in one precision" in text
    assert "TFLOP/s" in text
    assert "fp32-right" in text


def test_a_version_that_started_from_samples_says_so(run_pages, ran):
    ground = BaselineKey("gemm@0123456789ab", SKU, FAMILY)
    number = propose_samples(ran.rooms, ground, "run_1", note="500 <W> limit")
    client = run_pages("read", "bless")
    text = client.get(f"/ui/baselines/{number}").text
    assert "This version comes from samples" in text
    assert "a sample</small>" in text
    assert "2026-11-21, driver 535.183.01, cuda 12.4.1, torch 2.4.1+cu124" in text
    assert "500 &lt;W&gt; limit" in text
    assert "/ui/runs/run_1" not in text, "it is no run of this gate"
    assert "<small>samples</small>" in client.get("/ui/baselines").text


def test_a_version_that_does_not_fit_is_refused(run_pages, ran):
    client = run_pages("read", "bless")
    assert ">Refuse</button>" in client.get("/ui/baselines/1").text
    assert post(client, "baselines/1/refuse").headers["Location"] == "/ui/baselines/1"
    text = client.get("/ui/baselines/1").text
    assert "no run is judged against version 1" in text
    assert ">Refuse</button>" not in text
    assert ran.rooms.baselines.show(1).state == "refused"
    assert "1" in client.get("/ui/baselines?state=refused&format=csv").text
    assert post(client, "baselines/1/refuse").status_code == 409
    assert ">Refuse</button>" not in run_pages("read").get("/ui/baselines/3").text
