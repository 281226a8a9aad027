"""A worker process of the service."""

from __future__ import annotations

import os
import signal

from gunicorn.config import Config

from compatgate.web.worker import Worker


def test_a_worker_that_is_told_to_stop_while_it_starts_does_so():
    worker = Worker(1, os.getpid(), [], None, 10, Config(), None)
    worker.method_queue.init()  # what comes before the application is loaded
    worker.handle_exit(signal.SIGTERM, None)
    assert not worker.alive
