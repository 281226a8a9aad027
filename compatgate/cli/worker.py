"""Run ``compatgate worker``: take canary runs from the queue and run them on staging hosts."""

from __future__ import annotations

import logging
import os
import signal
import socket
from argparse import ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING

from compatgate.cli.gate.opening import open_rooms
from compatgate.cli.serve_readers import port
from compatgate.errors import InfrastructureError
from compatgate.kit import logs, tracing
from compatgate.kit.cli.options import add_database, add_log_format, add_workloads
from compatgate.kit.cli.parser import bounded_count

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from compatgate.canary.allowed_images import AllowedImages
    from compatgate.canary.engine.interface import ImageContent
    from compatgate.canary.hosts import Host
    from compatgate.canary.worker import Worker
    from compatgate.service.app import Rooms

_EXAMPLES = """\
examples:
  compatgate worker --hosts hosts.toml --database postgresql://gate@db.example/gate
  compatgate worker --hosts hosts.toml --image 'registry.example/team/*'
  compatgate worker --hosts hosts.toml --workloads ./our-workloads --once

exit status: 0 stopped, or (--once) nothing is left to run; 2 bad input; 3 the database, or (--once)
a host, does not answer
"""
_VERIFY_EVERY_S = 600
_SWEEP_EVERY_S = 3600
_CHECK_EVERY_S = 60


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
    add_database(parser)
    add_workloads(parser)
    add(
        "--image",
        action="append",
        default=[],
        metavar="PATTERN",
        help="images under test that may run, like registry.example/team/*, or none; may be"
        " repeated (default: $COMPATGATE_CANARY_IMAGES, comma-separated; else all images with"
        " SQLite, none with PostgreSQL)",
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
        help="repeat the runs behind blessed entries after this time; 0: never (default: 30d)",
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
    from compatgate.canary.hosts_file import read_hosts
    from compatgate.canary.worker import fill_in_driver
    from compatgate.documents.quantities import parse_duration

    every_s = 0
    if args.verify_every != "0":
        every_s = int(parse_duration(args.verify_every, field="--verify-every").total_seconds())
    images = _images(args)
    hosts = [fill_in_driver(host) for host in read_hosts(Path(args.hosts))]
    logs.configure(args.log_format, args.log_level)
    tracing.start("compatgate-worker")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    with open_rooms(args, make=True) as rooms:
        if not images.patterns:
            logging.warning("runs that name an image are refused: %s", images.extend)
        _work(args, rooms, hosts, every_s, images)
    return 0


def _images(args: argparse.Namespace) -> AllowedImages:
    """Return the images under test that this worker may run.

    Only its owner, or a gate that has checked the image, writes to an SQLite file. On PostgreSQL
    the queue is shared, and the worker trusts no other writer.
    """
    from compatgate.canary.allowed_images import read_allowed_images
    from compatgate.kit.database.database import resolve_url

    shared = resolve_url(args.database).drivername != "sqlite"
    return read_allowed_images(args.image, "worker --image", otherwise=() if shared else ("*",))


def _work(
    args: argparse.Namespace,
    rooms: Rooms,
    hosts: list[Host],
    every_s: int,
    images: AllowedImages,
) -> None:
    from compatgate.canary.engine.interface import Settings
    from compatgate.canary.worker import Worker, open_host, repeat_jobs
    from compatgate.canary.workloads.library import Library
    from compatgate.cli.worker_metrics import serve_metrics

    library = Library.open(args.workloads)
    settings = Settings.patient(args.lease, args.retry_pause)
    queue = rooms.runs.open_queue(settings, library.suites)
    queue.register(args.name, hosts)
    read_content = _content_reader(rooms)
    contexts = {
        host.name: open_host(
            host,
            queue,
            rooms.baselines,
            library.reread,
            rooms.gate.facts,
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
        with repeat_jobs({} if args.once else _list_jobs(worker, args.name, rooms, hosts, every_s)):
            worker.run(once=args.once)
            worker.drain(args.grace)
    finally:
        for context in contexts.values():
            context.executor.close()
        tracing.stop()
    if args.once:
        names = {host.name for host in hosts}
        away = [f"{one.name} is {one.away}" for one in rooms.runs.away_hosts() if one.name in names]
        if away:
            raise InfrastructureError(". ".join(away), field="hosts")


def _list_jobs(
    worker: Worker, name: str, rooms: Rooms, hosts: list[Host], every_s: int
) -> dict[Callable[[], object], int]:
    """Return what a worker does from time to time, with the seconds between two times."""

    def verify() -> None:
        for queued in rooms.runs.verify_due(by=name, every_s=every_s):
            logging.info("run %s: suite %s is due again", queued.id, queued.suite)

    def sweep() -> None:
        for host in hosts:
            try:
                worker.sweep(host.name, rooms.runs.ended)
            except InfrastructureError as error:
                logging.warning("host %s is not swept: %s", host.name, error.detail)

    jobs: dict[Callable[[], object], int] = {
        worker.check_hosts: _CHECK_EVERY_S,
        sweep: _SWEEP_EVERY_S,
    }
    if every_s:
        jobs[verify] = _VERIFY_EVERY_S
    return jobs


def _content_reader(rooms: Rooms) -> Callable[[str], ImageContent]:
    """Return the reader of images' GPU contents, with the variables for registries."""
    from compatgate.canary.image_content import make_content_reader
    from compatgate.catalog import read_source
    from compatgate.discovery.cache import default_image_folder
    from compatgate.discovery.registry.limits import read_options

    options = read_options(cache=default_image_folder())
    return make_content_reader(rooms.gate.facts, read_source("image_signals", None), options)


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
