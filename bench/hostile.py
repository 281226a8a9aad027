"""What the costliest requests cost a worker, in milliseconds of processor time.

``python bench/hostile.py [--only TEXT] [--worst 20]``, or ``--clients 64`` for `heavy`'s table

Every request of ``tests/support/hostile_bodies.py`` is sent once to the application, in this
process: with a token of every scope, and the example matrix. The goal is that none costs more than
250 ms; the exit status is 1 if one does.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parents[1]
sys.path[:0] = [str(HERE / "tests" / "support")]

import heavy  # noqa: E402
from flask.testing import FlaskClient  # noqa: E402
from hostile_bodies import FORM, Attack, attacks  # noqa: E402
from ui_marks import form_token  # noqa: E402

from compatgate.documents.sources import read_paths  # noqa: E402
from compatgate.kit.principal import Authorship  # noqa: E402
from compatgate.resources import matrix_dir  # noqa: E402
from compatgate.service.app import open_rooms  # noqa: E402
from compatgate.web.app import create_app  # noqa: E402
from compatgate.web.service import Settings  # noqa: E402

GOAL_MS = 250.0
_ALL = frozenset({"read", "gate", "operate", "bless", "admin"})
HEAD = """\
`bench/hostile.py`: processor time of one request, the costliest first. Goal: under 250 ms.

| request | status | ms |
|---|---|---|"""


class Cost(NamedTuple):
    """What a request cost."""

    ms: float
    status: int
    name: str


def send(client: FlaskClient, attack: Attack, token: str) -> Cost:
    """Send a request; return its cost in processor time."""
    body = attack.body + token.encode() if attack.media == FORM else attack.body
    began = time.process_time()
    answer = client.open(
        attack.path,
        method=attack.method,
        data=body,
        content_type=attack.media if body else None,
        headers={"X-Compatgate-Reason": "hostile", **attack.headers},
    )
    answer.get_data()
    return Cost((time.process_time() - began) * 1000, answer.status_code, attack.name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="requests whose name has this text")
    parser.add_argument("--worst", type=int, default=20, help="how many to print")
    parser.add_argument("--clients", type=int, help="ask a served gate what is expensive")
    args = parser.parse_args()
    if args.clients:
        heavy.run(200, 10, args.clients, 15)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        rooms = open_rooms(f"{folder}/gate.db")
        by = Authorship("bench", "hostile requests")
        rooms.matrix.import_documents(read_paths([matrix_dir() / "examples"]), by)
        client = create_app(rooms, Settings(anonymous=_ALL, overlays=())).test_client()
        token = form_token(client)
        gc.collect()
        gc.freeze()  # as the server does
        costs = []
        for attack in attacks():
            if args.only in attack.name:
                cost = send(client, attack, token)
                if cost.ms > GOAL_MS:  # once more: what is loaded at the first use is not its cost
                    cost = min(cost, send(client, attack, token))
                    print(f"{cost.ms:9.0f} {cost.status} {cost.name}", file=sys.stderr, flush=True)
                costs.append(cost)
        rooms.close()
    print(HEAD)
    for cost in sorted(costs, reverse=True)[: args.worst]:
        print(f"| {cost.name} | {cost.status} | {cost.ms:.0f} |")
    over = sum(cost.ms > GOAL_MS for cost in costs)
    statuses = Counter(cost.status for cost in costs)
    print(
        f"\n{len(costs)} requests, {over} over the goal; statuses {dict(sorted(statuses.items()))}"
    )
    return int(over > 0 or any(status >= 500 for status in statuses))


if __name__ == "__main__":
    sys.exit(main())
