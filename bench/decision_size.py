"""How many bytes of a database a decision costs.

``python bench/decision_size.py [--decisions 6000] [--new 0.3] [--batch 1,8] [--database URL]``

Real stacks (``tests/conformance/threads.yaml``) are asked about on the targets of
``matrix/examples``, each in an image with a digest. A share of the questions is new: another build
of a stack, so its verdict is new, too. The others repeat an earlier one. The gate decides, and its
decisions are stored as the gate stores them, so many in a batch: a quiet gate has one decision in
a batch, a busy one has more. The size is that of the tables and indexes of decisions, less what
they had when empty. ``--database`` names an empty PostgreSQL database, which is emptied afterwards;
else it is an SQLite file.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml
from sqlalchemy import text

from compatgate.errors import CompatgateError
from compatgate.kit.database import tables
from compatgate.kit.database.database import Database
from compatgate.service.app import Rooms
from compatgate.service.gate.decisions.batch_store import DecisionWriter, Delivery
from compatgate.service.gate.decisions.batches import WriterChain
from compatgate.service.gate.questions.decider import AnswerRecord
from compatgate.service.gate.questions.images import ImageSettings
from compatgate.web import startup

ROOT = Path(__file__).parents[1]
THREADS = ROOT / "tests" / "conformance" / "threads.yaml"
MATRIX = ROOT / "matrix" / "examples"
TARGETS = ("prod-a100", "staging-h100", "inference-l4", "dev-rtx")
TEAMS = ("training", "serving", "vision", "speech", "search", "simulation")
STORED = ("decision_batches", "decisions", "verdicts")
HEAD = """\
`bench/decision_size.py`: bytes of the database for a decision, indexes included: {stacks} stacks of
public threads on {targets} targets, {new:.0%} of the decisions with a new verdict, {decisions:,}
decisions. A quiet gate stores each decision in a batch of its own. Goal: under 600.

| database | decisions in a batch | a decision | batches | decisions | verdicts | a new verdict |
|---|---|---|---|---|---|---|"""


def read_stacks() -> list[str]:
    """Return the stacks of the threads, each once."""
    rows = yaml.safe_load(THREADS.read_text())
    return sorted({row["stack"] for row in rows})


def make_question(stack: str, target: str, draw: random.Random) -> bytes:
    """Return a question about a build of a stack."""
    parts = dict(part.partition("=")[::2] for part in stack.split(","))
    image = f"registry.example/{draw.choice(TEAMS)}/app@sha256:{draw.getrandbits(256):064x}"
    return json.dumps({"target": target, "stack": parts, "image": image}).encode()


def decide(rooms: Rooms, count: int, new: float) -> Iterator[AnswerRecord]:
    """Decide questions, of which a share is new."""
    draw = random.Random(20261123)
    stacks, asked = read_stacks(), list[bytes]()
    while count:
        if not asked or draw.random() < new:
            asked.append(make_question(draw.choice(stacks), draw.choice(TARGETS), draw))
            question = asked[-1]
        else:
            question = asked[int(len(asked) * draw.random() ** 2)]
        who = f"ci-{draw.choice(TEAMS)}"
        try:
            yield rooms.gate.evaluate(question, asked_by=who, source="hook:kubernetes", image_s=0)
        except CompatgateError:  # a stack that has nothing to decide
            asked.remove(question)
            continue
        count -= 1


def store(database: Database, records: Sequence[AnswerRecord], batch: int) -> None:
    """Store decisions as the gate does, a transaction for each batch."""
    chain, writer, known = WriterChain(), DecisionWriter(database), set[str]()
    for start in range(0, len(records), batch):
        rows = [record.row for record in records[start : start + batch]]
        bodies = {row.verdict_id: body for row, body in rows if row.verdict_id not in known}
        known.update(bodies)
        made = chain.make([row for row, _ in rows], bodies)
        writer.write([Delivery(made, bodies)])
        chain.take(made)
    writer.close()


def measure(database: Database) -> dict[str, int]:
    """Return the bytes of each table, its indexes included."""
    with database.writing() as session:
        if not database.is_sqlite:
            ask = text("SELECT pg_total_relation_size(CAST(:name AS regclass))")
            return {name: int(session.execute(ask, {"name": name}).scalar_one()) for name in STORED}
        ask = text(
            "SELECT sum(pgsize) FROM dbstat WHERE aggregate = true AND name IN"
            " (SELECT name FROM sqlite_schema WHERE tbl_name = :name)"
        )
        return {name: int(session.execute(ask, {"name": name}).scalar_one()) for name in STORED}


class Sizes(NamedTuple):
    """What one run showed, in bytes for a decision."""

    by_table: dict[str, float]
    verdicts: int


def run(url: str, args: argparse.Namespace, batch: int) -> Sizes:
    """Decide, store and measure, in an empty database."""
    database = Database.open(url)
    tables.migrate_schema(database)
    with tempfile.TemporaryDirectory() as folder:
        prepared = startup.prepare(startup.StartOptions(url, [str(MATRIX)], state=folder))
        rooms = prepared.open_rooms(ImageSettings())
        records = list(decide(rooms, args.decisions, args.new))
        rooms.close()
    empty = measure(database)
    store(database, records, batch)
    found = measure(database)
    tables.migrate_schema(database, "base")
    database.close()
    shares = {name: (found[name] - empty[name]) / len(records) for name in STORED}
    return Sizes(shares, len({record.decision.verdict_id for record in records}))


def make_row(url: str | None, args: argparse.Namespace, batch: int) -> str:
    """Return a row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        sizes = run(url or str(Path(folder, "bench.db")), args, batch)
    name = "PostgreSQL" if url else "SQLite"
    each = " | ".join(f"{sizes.by_table[one]:.0f}" for one in STORED)
    new = sizes.by_table["verdicts"] * args.decisions / sizes.verdicts
    return f"| {name} | {batch} | {sum(sizes.by_table.values()):.0f} | {each} | {new:.0f} |"


def main(arguments: Sequence[str] = ()) -> str:
    """Measure; the text for the page of results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decisions", type=int, default=6_000)
    parser.add_argument("--new", type=float, default=0.3, help="share of new verdicts (0.3)")
    parser.add_argument("--batch", default="1,8", help="decisions in a batch (1,8)")
    parser.add_argument("--database", metavar="URL", help="of PostgreSQL (an SQLite file)")
    args = parser.parse_args(arguments)
    batches = [int(number) for number in args.batch.split(",")]
    head = HEAD.format(
        stacks=len(read_stacks()), targets=len(TARGETS), new=args.new, decisions=args.decisions
    )
    return "\n".join([head, *(make_row(args.database, args, batch) for batch in batches)])


if __name__ == "__main__":
    print(main(sys.argv[1:]))
