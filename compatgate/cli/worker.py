"""Run ``compatgate worker``: take canary runs from the queue and run them on staging hosts."""

from __future__ import annotations

import logging
import os
import signal
import socket
from argparse import ArgumentTypeError
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from compatgate.cli.gate.opening import open_rooms
from compatgate.cli.serve_readers import port
from compatgate.errors import BadInput, InfrastructureError
from compatgate.kit import logs, tracing
from compatgate.kit.cli.options import add_database, add_log_format, add_workloads
from compatgate.kit.cli.parser import bounded_count

if TYPE_CHECKING:
    import argparse

    from compatgate.canary.allowed_images import AllowedImages
    from compatgate.canary.engine.interface import Baselines, ImageContent, Queue, Settings
    from compatgate.canary.hosts import Host
    from compatgate.canary.worker import Worker
    from compatgate.canary.workloads.library import Library
    from compatgate.core.facts import Facts
    from compatgate.service.app import Rooms

_EXAMPLES = """\
examples:
  compatgate worker --hosts hosts.toml --gate https://gate.example
  compatgate worker --hosts hosts.toml --gate https://gate.example --image 'registry.example/team/*'
  compatgate worker --hosts hosts.toml --workloads ./our-workloads --once

With --gate, the worker serves the host of its token: compatgate token create --name HOST
--scope work. Without a gate it takes the runs of this machine's own database.
exit status: 0 stopped, or (--once) nothing is left to run; 2 bad input; 3 the gate or database, or
(--once) a host, does not answer
"""
_VERIFY_EVERY_S = 600
_SWEEP_EVERY_S = 3600
_CHECK_EVERY_S = 60
_LEAST_VERIFY_S = 86400


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.epilog = _EXAMPLES
    add = parser.add_argument
    add(
        "--hosts",
        required=True,
        metavar="FILE",
        help="hosts.toml with the staging hosts (Docker engines, Slurm, Kubernetes)",
    )
    add(
        "--gate",
        metavar="URL",
        help="URL of the gate whose runs it takes (default: $COMPATGATE_SERVER, unless"
        " $COMPATGATE_DATABASE is set)",
    )
    add("--token", metavar="TOKEN", help="access token of the host (default: $COMPATGATE_TOKEN)")
    add(
        "--gate-ca",
        metavar="FILE",
        help="PEM file with the authorities of the gate's certificate (default: the system's)",
    )
    add_database(parser)
    add_workloads(parser)
    add(
        "--image",
        action="append",
        default=[],
        metavar="PATTERN",
        help="images under test that may run, like registry.example/team/*, or none; may be"
        " repeated (default: $COMPATGATE_CANARY_IMAGES, comma-separated; else all images with"
        " SQLite, none with a gate or PostgreSQL)",
    )
    add(
        "--name",
        default=f"{socket.gethostname()}-{os.getpid()}",
        help="name of this worker (default: host name and process)",
    )
    _add_course(parser)
    add(
        "--metrics-port",
        type=port,
        metavar="PORT",
        help="port for Prometheus metrics, without a token (default: none)",
    )
    add(
        "--metrics-host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="address for the metrics (default: 127.0.0.1)",
    )
    add_log_format(parser, level="info")


def _add_course(parser: argparse.ArgumentParser) -> None:
    """Add the options on when runs start, repeat and end."""
    add = parser.add_argument
    add(
        "--concurrency",
        type=bounded_count,
        metavar="N",
        help="concurrent runs (default: all slots)",
    )
    add("--once", action="store_true", help="exit when no run can start")
    add(
        "--grace",
        type=_seconds_between(0, 86400),
        default=60.0,
        metavar="SECONDS",
        help="grace period in seconds after SIGTERM before runs are requeued (default: 60)",
    )
    add(
        "--verify-every",
        default="30d",
        metavar="DURATION",
        help="repeat the runs behind blessed entries after this time, with --gate at least 1d; 0:"
        " never (default: 30d)",
    )
    add(
        "--lease",
        type=_seconds_between(1, 3600),
        default=30.0,
        metavar="SECONDS",
        help="seconds without a heartbeat before other workers take over the runs (default: 30)",
    )
    add(
        "--retry-pause",
        type=_seconds_between(0, 3600),
        default=15.0,
        metavar="SECONDS",
        help="seconds before a retry after a host failure; each retry waits four times longer"
        " (default: 15)",
    )


def run(args: argparse.Namespace) -> int:
    """Work until a signal, or with ``--once`` until nothing is left to run; return 0."""
    from compatgate.canary.engine.interface import Settings
    from compatgate.canary.hosts_file import read_hosts
    from compatgate.canary.worker import fill_in_driver
    from compatgate.canary.workloads.library import Library

    gate = _find_gate(args)
    every_s = _read_interval(args.verify_every, gate)
    images = _images(args, gate)
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


def _find_gate(args: argparse.Namespace) -> str | None:
    """Return the URL of the gate; None: the database."""
    if args.gate and args.database:
        raise BadInput("--gate and --database cannot be used together", hint="choose one")
    if args.gate or args.database or os.environ.get("COMPATGATE_DATABASE"):
        return args.gate or None
    return os.environ.get("COMPATGATE_SERVER") or None


def _read_interval(text: str, gate: str | None) -> int:
    """Return the seconds after which runs are verified again; 0: never."""
    from compatgate.documents.quantities import parse_duration

    if text == "0":
        return 0
    every_s = int(parse_duration(text, field="--verify-every").total_seconds())
    if gate and every_s < _LEAST_VERIFY_S:
        raise BadInput("is too short", field="--verify-every", value=text, hint="at least 1d")
    return every_s


def _images(args: argparse.Namespace, gate: str | None) -> AllowedImages:
    """Return the images under test that this worker may run.

    Only its owner, or a gate that has checked the image, writes to an SQLite file. Another queue is
    shared, and the worker trusts no other writer.
    """
    from compatgate.canary.allowed_images import read_allowed_images
    from compatgate.kit.database.database import resolve_url

    shared = bool(gate) or resolve_url(args.database).drivername != "sqlite"
    return read_allowed_images(args.image, "worker --image", otherwise=() if shared else ("*",))


class _Place(Struct, frozen=True):
    """Where runs come from: a gate, or a database.

    Attributes:
        ended: returns which of some runs have ended.
        verify: queues the runs that are due after some seconds; returns their ids.
        away: returns the hosts that do not answer, each with the reason.
    """

    hosts: Sequence[Host]
    queue: Queue
    baselines: Baselines
    facts: Facts
    ended: Callable[[Collection[str]], set[str]]
    verify: Callable[[int], Sequence[str]]
    away: Callable[[], list[str]]


@contextmanager
def _open_place(
    args: argparse.Namespace,
    gate: str | None,
    hosts: list[Host],
    settings: Settings,
    library: Library,
) -> Iterator[_Place]:
    if gate is None:
        with open_rooms(args, make=True) as rooms:
            yield _read_database(args.name, rooms, hosts, settings, library)
        return
    from compatgate.catalog import load_facts
    from compatgate.client.work import GateQueue, find_host
    from compatgate.gate_client import make_client

    with make_client(gate, args.token, stored=False, verify=args.gate_ca or True) as client:
        host = find_host(client, hosts)
        queue = GateQueue(client, host.name, settings, library.suites)
        yield _Place(
            [host],
            queue,
            queue,
            load_facts(None),
            queue.ended,
            partial(queue.verify_due, args.name),
            partial(queue.away, args.name, [host]),
        )


def _read_database(
    name: str, rooms: Rooms, hosts: list[Host], settings: Settings, library: Library
) -> _Place:
    runs = rooms.runs
    if not rooms.gate.database.is_sqlite:
        logging.warning(
            "worker --database with PostgreSQL goes with the next release, so that no worker holds"
            " the database's password: use --gate with a token of the scope work"
        )
    names = {host.name for host in hosts}
    return _Place(
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
    from compatgate.canary.worker import Worker, open_host, repeat_jobs
    from compatgate.cli.worker_metrics import serve_metrics

    hosts, queue = place.hosts, place.queue
    queue.register(args.name, hosts)
    read_content = _content_reader(place.facts)
    contexts = {
        host.name: open_host(
            host,
            queue,
            place.baselines,
            library.reread,
            place.facts,
            settings,
            images,
            read_content,
        )
        for host in hosts
    }
    worker = Worker(
        args.name,
        queue,
        hosts,
        contexts,
        concurrency=args.concurrency,
        probe=settings.heartbeat,
    )
    _stop_on_signals(worker)
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

    jobs: dict[Callable[[], object], int] = {
        worker.check_hosts: _CHECK_EVERY_S,
        sweep: _SWEEP_EVERY_S,
    }
    if every_s:
        jobs[verify] = _VERIFY_EVERY_S
    return jobs


def _content_reader(facts: Facts) -> Callable[[str], ImageContent]:
    """Return the reader of images' GPU contents, with the variables for registries."""
    from compatgate.canary.image_content import make_content_reader
    from compatgate.catalog import read_source
    from compatgate.discovery.cache import default_image_folder
    from compatgate.discovery.registry.limits import read_options

    options = read_options(cache=default_image_folder())
    return make_content_reader(facts, read_source("image_signals", None), options)


def _stop_on_signals(worker: Worker) -> None:
    def stop(number: int, _: object) -> None:
        name = signal.Signals(number).name
        logging.info("%s: taking no new runs; a second signal requeues the running ones", name)
        worker.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)


def _seconds_between(least: int, most: int) -> Callable[[str], float]:
    def seconds(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = -1
        if not least <= value <= most:
            raise ArgumentTypeError(f"'{text}' is not a number of seconds, {least} to {most}")
        return value

    return seconds
