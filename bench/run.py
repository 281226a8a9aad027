"""Runs the benches and writes ``bench/RESULTS.md`` (``make bench``), on an idle machine.

Figures of GPUs are not among them: ``gpu.py`` measures those, elsewhere; they are carried over.
"""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

import admission
import backtest
import change_points
import decide
import far_gates
import files_run
import fleet_pages
import gpu_page
import http_gate
import judge
import layers
import packages
import pages
import run_queue
import solve
import startup

import canary

RESULTS = Path(__file__).with_name("RESULTS.md")

PAGE = """# Results

Made by `make bench` on {date} with Python {python} on {cores} cores. Absolute times belong to that
machine; the ratios are taken in one run, the two sides in turn, and are what to compare.

## Deciding in memory

`bench/decide.py`: median microseconds per decision, fixes included, at four sizes of the matrix
(100 entries concern the target that is asked about). Goals: under 200 at 10,000 entries; growth
from 100 to 100,000 under 1.2 x.

| verdict | 100 | 1,000 | 10,000 | 100,000 | growth |
|---|---|---|---|---|---|
{decide}

## GPU packages

`bench/packages.py`: a stack of torch with up to 60 packages that run together, against torch alone;
and `check --lock` of 200 packages against `check --pool`, whole processes. Goals: 2.5 x and 10 x.

| what | ms | baseline ms | ratio |
|---|---|---|---|
{packages}

## Finding stacks

`bench/solve.py`: `compatgate solve` over the shipped facts, CPU time: the first search of a process
with its tables of facts, later ones, evaluations, and the ratio to one evaluation. Goal: under
1,000 ms. The last two have no answer.

| want | on | first ms | ms | evaluations | ratio |
|---|---|---|---|---|---|
{solve}

## Starting

`bench/startup.py`: `compatgate check` as a whole process, against `python -c pass`, in processor
time. Goal: at most 6 x, and 30 x for a target of a local SQLite file.

| question | ms | baseline ms | ratio |
|---|---|---|---|
{startup}

## Files of an operation

`bench/files_run.py`: files whose functions run, and files that are imported. Goals: at most 45 for
a question to the gate, 150 for a canary run; at most 450 files in all.

{files_run}

## The gate over HTTP

{http}

## The size of a decision

{decision_size}

## Against the server before

{against}

## Far gates

{far_gates}

## Kubernetes admission

{admission}

## The pages of a large gate

{pages}

## Reading layers

`bench/layers.py`: one layer of 30,000 small files and 24 libraries, decompressed, verified and
searched for GPU code, against `gzip -dc | tar t` and `zstd -dc | tar t` of the same file, which
run as two processes. Goals: 0.5 x of their throughput, peak memory of the process under 150 MB.

| layer | unpacked | compatgate | tar t | throughput | peak memory |
|---|---|---|---|---|---|
{layers}

## Backtests

{backtest}

## A large fleet

{fleet_pages}

## The queue of canary runs

{queue}

## The canary judge

{judge}

## Change points

{change_points}

## Canary runs

`bench/canary.py`: hello-cpu through the Docker executor (files put in, started, read, judged by the
protocol, cleaned) against `docker run --rm` of the same image and program. Goal: under 1.1 x plus
one second.

| workload | run, s | docker run, s | ratio | difference |
|---|---|---|---|---|
{canary}

## GPUs

{gpus}
"""


def carried(page: str, title: str) -> str:
    """Return a section of the page as it is: another command measures it."""
    return page.partition(f"## {title}\n\n")[2].partition("\n\n## ")[0]


def main() -> None:
    """Measure, print and write."""
    page = PAGE.format(
        date=datetime.now(UTC).date().isoformat(),
        python=platform.python_version(),
        cores=os.cpu_count(),
        decide="\n".join(decide.main()),
        packages="\n".join(packages.main()),
        solve="\n".join(solve.main()),
        startup="\n".join(startup.main()),
        files_run="\n".join(files_run.main()),
        http=http_gate.main(),
        decision_size=carried(RESULTS.read_text(), "The size of a decision"),
        against=carried(RESULTS.read_text(), "Against the server before"),
        far_gates="\n".join(far_gates.main()),
        admission=admission.main(),
        pages=pages.main(),
        layers="\n".join(layers.main()),
        backtest=backtest.main(),
        fleet_pages=fleet_pages.main(),
        queue=run_queue.main(),
        judge=judge.main(),
        change_points=change_points.main(),
        canary="\n".join(canary.main()),
        gpus=gpu_page.carried(RESULTS.read_text()),
    )
    RESULTS.write_text(page)
    sys.stdout.write(page)


if __name__ == "__main__":
    main()
