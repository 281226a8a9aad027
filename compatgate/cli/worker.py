"""Run ``compatgate worker``: take canary runs from the queue and run them on staging hosts."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from compatgate.canary.allowed_images import AllowedImages, read_allowed_images
from compatgate.canary.engine import Baselines, Queue, Settings
from compatgate.canary.hosts import Host
from compatgate.canary.hosts_file import read_hosts
from compatgate.canary.workloads.library import Library
from compatgate.catalog import load_facts, read_source
from compatgate.cli.gate import open_rooms
from compatgate.core.facts import Facts
from compatgate.discovery.cache import default_image_folder
from compatgate.discovery.registry.limits import read_options
from compatgate.documents.quantities import parse_duration
from compatgate.errors import BadInput, InfrastructureError, quote_error
from compatgate.gate_client import make_client
from compatgate.kit import logs, tracing
from compatgate.kit.cli.options import DATABASE, add_log_format, add_workloads
from compatgate.kit.cli.usage import COUNT, PORT, bounded_seconds, command

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from compatgate.canary.worker import Worker

_VERIFY_EVERY_S = 600
_SWEEP_EVERY_S = 3600
_CHECK_EVERY_S = 60
_LEAST_VERIFY_S = 86400


@command(
    """\
--hosts FILE (required)  hosts.toml with the staging hosts (Docker engines, Slurm, Kubernetes)
--gate URL           URL of the gate whose runs it takes (default: $COMPATGATE_SERVER, unless
                     $COMPATGATE_DATABASE is set)
--token TOKEN        access token of the host (default: $COMPATGATE_TOKEN)
--gate-ca FILE       PEM file with the authorities of the gate's certificate (default: the system's)
""",
    DATABASE,
    add_workloads,
    """\
--image PATTERN ...   images under test that may run, like registry.example/team/*, or none; may be
                      repeated (default: $COMPATGATE_CANARY_IMAGES, comma-separated; else all images
                      with SQLite, none with a gate or PostgreSQL)
--name NAME           name of this worker (default: host name and process)
--concurrency N       concurrent runs (default: all slots)
--once                exit when no run can start
--grace SECONDS = 60  grace period in seconds after SIGTERM before runs are requeued
--verify-every DURATION = 30d
    repeat the runs behind blessed entries after this time, with --gate at least 1d; 0: never
--lease SECONDS = 30  seconds without a heartbeat before other workers take over the runs
--retry-pause SECONDS = 15
    seconds before a retry after a host failure; each retry waits four times longer
--metrics-port PORT   port for Prometheus metrics, without a token (default: none)
--metrics-host ADDRESS = 127.0.0.1  address for the metrics
""",
    partial(add_log_format, level="info"),
    epilog="""\
examples:
  compatgate worker --hosts hosts.toml --gate https://gate.example
  compatgate worker --hosts hosts.toml --gate https://gate.example --image 'registry.example/team/*'
  compatgate worker --hosts hosts.toml --workloads ./our-workloads --once

With --gate, the worker serves the host of its token: compatgate token create --name HOST
--scope work. Without a gate it takes the runs of this machine's own database.
exit status: 0 stopped, or (--once) nothing is left to run; 2 bad input; 3 the gate or database, or
(--once) a host, does not answer
""",
    name={"default": f"{socket.gethostname()}-{os.getpid()}"},
    concurrency={"type": COUNT},
    grace={"type": bounded_seconds(", 0 to 86400", 0, 86400)},
    lease={"type": bounded_seconds(", 1 to 3600", 1, 3600)},
    retry_pause={"type": bounded_seconds(", 0 to 3600", 0, 3600)},
    metrics_port={"type": PORT},
)
def run(args: argparse.Namespace) -> int:
    """Work until a signal, or with ``--once`` until nothing is left to run; return 0."""
    from compatgate.canary.worker import fill_in_driver
    from compatgate.kit.database.database import resolve_url

    if args.gate and args.database:
        raise BadInput("--gate and --database cannot be used together", hint="choose one")
    gate, every_s = args.gate or None, 0
    if not (args.gate or args.database or os.environ.get("COMPATGATE_DATABASE")):
        gate = os.environ.get("COMPATGATE_SERVER") or None
    if args.verify_every != "0":
        every_s = int(parse_duration(args.verify_every, field="--verify-every").total_seconds())
        if gate and every_s < _LEAST_VERIFY_S:
            value = args.verify_every
            raise BadInput("is too short", field="--verify-every", value=value, hint="at least 1d")
    # Only its owner, or a gate that has checked the image, writes to an SQLite file. Another queue
    # is shared, and the worker trusts no other writer.
    shared = bool(gate) or resolve_url(args.database).drivername != "sqlite"
    images = read_allowed_images(args.image, "worker --image", otherwise=() if shared else ("*",))
    hosts = [fill_in_driver(host) for host in read_hosts(Path(args.hosts))]
    library = Library.open(args.workloads)
    settings = Settings.patient(args.lease, args.retry_pause)
    logs.configure(args.log_format, args.log_level)
    tracing.start("compatgate-worker")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    with _open_place(args, gate, hosts, settings, library) as place:
        if not images.patterns:
            logging.warning("runs that name an image are refused: %s", images.extend)
        _work(args, place, settings, library, every_s, images)
    return 0


class _Place(Struct, frozen=True):
    """Where runs come from: a gate, or a database."""

    hosts: Sequence[Host]
    queue: Queue
    baselines: Baselines
    facts: Facts
    ended: Callable[[Collection[str]], set[str]]
    """Returns which of some runs have ended."""
    verify: Callable[[int], Sequence[str]]
    """Queues the runs that are due after some seconds; returns their ids."""
    away: Callable[[], list[str]]
    """Returns the hosts that do not answer, each with the reason."""


@contextmanager
def _open_place(
    args: argparse.Namespace,
    gate: str | None,
    hosts: list[Host],
    settings: Settings,
    library: Library,
) -> Iterator[_Place]:
    name = args.name
    if gate is not None:
        from compatgate.client.work import GateQueue, find_host

        with make_client(gate, args.token, stored=False, verify=args.gate_ca or True) as client:
            host = find_host(client, hosts)
            queue = GateQueue(client, host.name, settings, library.suites)
            verify, away = partial(queue.verify_due, name), partial(queue.away, name, [host])
            yield _Place([host], queue, queue, load_facts(None), queue.ended, verify, away)
        return
    with open_rooms(args, make=True) as rooms:
        if not rooms.gate.database.is_sqlite:
            logging.warning(
                "worker --database with PostgreSQL goes with the next release, so that no worker"
                " holds the database's password: use --gate with a token of the scope work"
            )
        runs, names = rooms.runs, {host.name for host in hosts}
        yield _Place(
            hosts,
            runs.open_queue(settings, library.suites),
            rooms.baselines,
            rooms.gate.facts,
            runs.ended,
            lambda every_s: [run.id for run in runs.verify_due(by=name, every_s=every_s)],
            lambda: [f"{one.name} is {one.away}" for one in runs.away_hosts() if one.name in names],
        )


def _work(
    args: argparse.Namespace,
    place: _Place,
    settings: Settings,
    library: Library,
    every_s: int,
    images: AllowedImages,
) -> None:
    from compatgate.canary.worker import Worker, make_content_reader, open_host, repeat_jobs

    hosts, queue = place.hosts, place.queue
    queue.register(args.name, hosts)
    reading = read_options(cache=default_image_folder())
    read_content = make_content_reader(place.facts, read_source("image_signals", None), reading)
    reread, facts, baselines = library.reread, place.facts, place.baselines
    contexts = {
        one.name: open_host(one, queue, baselines, reread, facts, settings, images, read_content)
        for one in hosts
    }
    worker = Worker(
        args.name, queue, hosts, contexts, concurrency=args.concurrency, probe=settings.heartbeat
    )

    def stop(number: int, _: object) -> None:
        name = signal.Signals(number).name
        logging.info("%s: taking no new runs; a second signal requeues the running ones", name)
        worker.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    if args.metrics_port is not None:
        serve_metrics(worker, args.metrics_host, args.metrics_port)
    logging.info("worker %s serves %s", args.name, ", ".join(host.name for host in hosts))
    try:
        with repeat_jobs({} if args.once else _list_jobs(worker, place, every_s)):
            worker.run(once=args.once)
            worker.drain(args.grace)
    finally:
        for context in contexts.values():
            context.executor.close()
        tracing.stop()
    if args.once and (away := place.away()):
        raise InfrastructureError(". ".join(away), field="hosts")


def _list_jobs(worker: Worker, place: _Place, every_s: int) -> dict[Callable[[], object], int]:
    """Return what a worker does from time to time, with the seconds between two times."""

    def verify() -> None:
        for run in place.verify(every_s):
            logging.info("run %s is due again", run)

    def sweep() -> None:
        for host in place.hosts:
            try:
                worker.sweep(host.name, place.ended)
            except InfrastructureError as error:
                logging.warning("host %s is not swept: %s", host.name, error.detail)

    regular = (worker.check_hosts, _CHECK_EVERY_S), (sweep, _SWEEP_EVERY_S)
    return dict([*regular, (verify, _VERIFY_EVERY_S)] if every_s else regular)


def serve_metrics(worker: Worker, host: str, port: int) -> int:
    """Serve the metrics of a worker in a thread, and return the port; 0 chooses a free one."""
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    registry.register(WorkerCollector(worker))
    try:
        server, _ = start_http_server(port, host, registry)
    except OSError as error:
        what = f"cannot listen on {host}, port {port}: {quote_error(error)}"
        raise BadInput(what, field="--metrics-port") from None
    logging.info("metrics are at http://%s:%d/metrics", host, server.server_port)
    return server.server_port


class WorkerCollector:
    """The state of a worker, read at each scrape."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        from compatgate.web.metric_table import WORKER

        state = self._worker.state()
        for spec in WORKER:
            yield spec.collect(state)
