"""Answer a section of the table of stacks and places, and keep the answers for a snapshot.

Answers are kept per state of the matrix, within a limit of memory, and no longer than the verdict
behind them holds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from typing import Literal
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.cell_filter import CellFilter, Place, read_filter
from compatgate.core.cells import (
    STATE_RANK,
    CellAnswer,
    StackRow,
    answer_cell,
    join_answers,
    list_framework_rows,
    list_release_rows,
    make_entry_row,
)
from compatgate.core.evaluate import format_moment, is_allowed
from compatgate.core.gpus import is_spelled
from compatgate.core.matrix import Matrix
from compatgate.core.performance import MIB, BoundedCache
from compatgate.core.request import Pool, Target
from compatgate.core.stack import Stack, parse_stack
from compatgate.core.versions import natural_key
from compatgate.core.worded_question import read_question
from compatgate.errors import BadInput
from compatgate.service.matrix.snapshots.snapshot import Snapshot

CellColumns = Literal["target", "pool", "gpu", "driver"]
STACK_ROWS = "stack"
ENTRY_ROWS = "entry"
FRAMEWORK_ROWS = "framework"
_CACHE_BYTES = 32 * MIB
_ANSWER_BYTES = 700
_CacheKey = tuple[str, bytes, str, tuple[str, ...]]
_caches: WeakKeyDictionary[Matrix, BoundedCache[_CacheKey, CellAnswer]] = WeakKeyDictionary()
_rows: WeakKeyDictionary[Matrix, dict[tuple[str, str], StackRow]] = WeakKeyDictionary()
_framework_rows: WeakKeyDictionary[Matrix, dict[str, list[StackRow]]] = WeakKeyDictionary()
"""The rows of a state of the matrix, by digest of the facts."""


class CellColumn(Struct, frozen=True):
    """A column: targets, each with the pools that it is about, or why it cannot be asked.

    ``identity``: names of its targets and pools, where it has several targets.
    """

    key: str
    note: str
    targets: tuple[Target, ...] = ()
    unusable: str = ""
    identity: tuple[str, ...] = ()


class CellSection(Struct, frozen=True):
    """The section to answer.

    Attributes:
        rows: ``framework`` for the releases that entries name, ``entry``, ``stack``, or the name
            of a framework for its builds.
        stack: the stack in words or in its exact form, for ``stack``.
        q: filter, as of `compatgate.core.cell_filter`.
    """

    rows: str = ENTRY_ROWS
    columns: CellColumns = "target"
    stack: str = ""
    q: str = ""
    top: int = 0
    left: int = 0
    height: int = 40
    width: int = 24


class CellTable(Struct, frozen=True):
    """An answered section: for each row an answer per column; None: not answered in time."""

    rows: tuple[StackRow, ...]
    columns: tuple[CellColumn, ...]
    cells: tuple[tuple[CellAnswer | None, ...], ...]
    rows_total: int
    columns_total: int
    pending: bool


class PlaceAnswer(Struct, frozen=True):
    """The answer for a stack on one pool; ``place``: target and pool, ``prod/a100``."""

    place: str
    note: str
    answer: CellAnswer
    allowed: bool


class PlaceAnswers(Struct, frozen=True):
    """The answers for a stack on pools, best first; ``more``: pools that are left out."""

    places: tuple[PlaceAnswer, ...]
    more: int

    @property
    def running(self) -> int:
        """Return the number of pools on which the stack runs."""
        return sum(one.answer.runs for one in self.places)


def build_table(
    snapshot: Snapshot, asked: CellSection, now: datetime, seconds: float = float("inf")
) -> CellTable:
    """Return a section of the table.

    New cells are answered for so many seconds; the others stay None.
    """
    wanted = read_filter(asked.q, _places(snapshot), snapshot.entries)
    rows = list_cell_rows(snapshot, asked, wanted)
    columns = list_cell_columns(snapshot, asked.columns, wanted)
    down = tuple(_complete_row(row, snapshot) for row in rows[asked.top : asked.top + asked.height])
    across = tuple(columns[asked.left : asked.left + asked.width])
    asker = _Asker(snapshot, now, time.monotonic() + seconds)
    cells = tuple(
        tuple(asker.answer(row, text, column) for column in across)
        for row, text in ((row, _identify(row)) for row in down)
    )
    pending = any(cell is None for line in cells for cell in line)
    return CellTable(down, across, cells, len(rows), len(columns), pending)


def list_cell_rows(snapshot: Snapshot, asked: CellSection, wanted: CellFilter) -> list[StackRow]:
    """Return the rows: entries by name, builds newest first; entries have no stack yet."""
    facts = snapshot.facts
    if asked.rows == ENTRY_ROWS:
        entries = wanted.keep_entries(snapshot.entries.values(), facts)
        entries.sort(key=lambda entry: natural_key(entry.name))
        return [StackRow(e.name, e.name, "", None, entry=e) for e in entries]
    if asked.rows == FRAMEWORK_ROWS:
        known = _framework_rows.setdefault(snapshot.matrix, {})
        if facts.digest not in known:
            known[facts.digest] = list_framework_rows(snapshot.entries.values(), facts)
        return [row for row in known[facts.digest] if row.stack and wanted.keeps_stack(row.stack)]
    if asked.rows == STACK_ROWS:
        return [_read_stack_row(snapshot, asked.stack)]
    found = list_release_rows(facts, asked.rows)
    return [row for row in found if row.stack and wanted.keeps_stack(row.stack)]


def _read_stack_row(snapshot: Snapshot, text: str) -> StackRow:
    if not text.strip():
        hint = "like torch 2.7 cu128, or torch=2.7.1+cu128,python=3.12"
        raise BadInput("does not name a stack", field="stack", value=text, hint=hint)
    try:
        question = read_question(text, snapshot.facts)
        stack = parse_stack(question.stack)
    except BadInput as error:
        raise error.at("stack") from None
    notes = "; ".join(one.message for one in question.assumptions)
    return StackRow(text, text, notes or "as it is written", stack)


def _complete_row(row: StackRow, snapshot: Snapshot) -> StackRow:
    """Return an entry's row with its stack, which is made once for a revision."""
    if row.entry is None:
        return row
    known = _rows.setdefault(snapshot.matrix, {})
    key = (row.key, snapshot.facts.digest)
    if key not in known:
        known[key] = make_entry_row(row.entry, snapshot.facts)
    return known[key]


def list_cell_columns(snapshot: Snapshot, by: CellColumns, wanted: CellFilter) -> list[CellColumn]:
    """Return the columns in natural order of their keys: drivers and GPUs form an axis."""
    if by == "target":
        found = [_target_column(snapshot, name, wanted) for name in snapshot.documents]
        columns = [one for one in found if one]
    else:
        columns = list(_pool_columns(snapshot, by, wanted))
    return sorted(columns, key=lambda column: natural_key(column.key))


def _target_column(snapshot: Snapshot, name: str, wanted: CellFilter) -> CellColumn | None:
    """Return a target with all its pools if one of them is wanted: a target is asked as a whole."""
    target = snapshot.targets.get(name)
    if target is None:
        unusable = snapshot.unusable.get(name, "the target cannot be used")
        return None if wanted.words or wanted.driver else CellColumn(name, "", (), unusable)
    labels = snapshot.documents[name].metadata.labels or {}
    wants_all = not (wanted.words or wanted.driver)
    if not wants_all and not any(wanted.keeps_place(name, labels, p) for p in target.pools):
        return None
    return CellColumn(name, ", ".join(dict.fromkeys(map(_describe, target.pools))), (target,))


def _pool_columns(snapshot: Snapshot, by: CellColumns, wanted: CellFilter) -> Iterator[CellColumn]:
    groups: dict[str, dict[str, list[Pool]]] = {}
    for name, labels, pool in _places(snapshot):
        if not wanted.keeps_place(name, labels, pool):
            continue
        gpu = pool.gpu.sku if pool.gpu else "not stated"
        driver = pool.driver.text if pool.driver else "not stated"
        key = {"pool": f"{name}/{pool.name}", "gpu": gpu}.get(by, driver)
        groups.setdefault(key, {}).setdefault(name, []).append(pool)
    for key, places in groups.items():
        targets = tuple(
            replace(snapshot.targets[name], pools=tuple(pools)) for name, pools in places.items()
        )
        note = _describe(targets[0].pools[0]) if by == "pool" else ", ".join(places)
        several = len(targets) > 1
        names = tuple(f"{one.name}/{p.name}" for one in targets for p in one.pools)
        yield CellColumn(key, note, targets, "", names if several else ())


def _describe(pool: Pool) -> str:
    gpu, driver = pool.gpu.sku if pool.gpu else "?", pool.driver.text if pool.driver else "?"
    return f"{gpu}, driver {driver}"


def _places(snapshot: Snapshot) -> list[Place]:
    return [
        (name, snapshot.documents[name].metadata.labels or {}, pool)
        for name, target in snapshot.targets.items()
        for pool in target.pools
    ]


def answer_places(
    snapshot: Snapshot, stack: Stack, gpu: str, now: datetime, most: int
) -> PlaceAnswers:
    """Return the answer for a stack on each pool with a GPU, or on each pool where it is empty."""
    columns = list_cell_columns(snapshot, "pool", CellFilter())
    if gpu:
        owned = [(column, column.targets[0].pools[0].gpu) for column in columns]
        columns = [one for one, own in owned if own and is_spelled(gpu, own, snapshot.facts.gpus)]
    asker = _Asker(snapshot, now, float("inf"))
    row = StackRow("", "", "", stack)
    text = _identify(row)
    places = []
    for column in columns[:most]:
        if answer := asker.answer(row, text, column):
            policy = column.targets[0].policy
            allowed = answer.verdict is not None and is_allowed(answer.verdict, policy)
            places.append(PlaceAnswer(column.key, column.note, answer, allowed))
    places.sort(key=lambda one: STATE_RANK[one.answer.state])
    return PlaceAnswers(tuple(places), len(columns) - len(places))


def find_answer(row: StackRow, column: CellColumn, snapshot: Snapshot, now: datetime) -> CellAnswer:
    """Return the answer of one cell, however long it takes."""
    found = _Asker(snapshot, now, float("inf")).answer(row, _identify(row), column)
    return found or CellAnswer("unknown", why="the cell could not be answered")


def _identify(row: StackRow) -> bytes:
    return msgspec.json.encode(row.stack.to_json()) if row.stack else b""


class _Asker:
    """Answers cells of one snapshot at one moment, from the cache where they are known."""

    def __init__(self, snapshot: Snapshot, now: datetime, deadline: float) -> None:
        self._snapshot, self._now, self._deadline = snapshot, now, deadline
        self._moment = format_moment(now)
        self._facts = f"{snapshot.facts.digest} {self._moment[:10]}"
        cache = _caches.get(snapshot.matrix)
        if cache is None:
            cache = _caches.setdefault(snapshot.matrix, BoundedCache(_CACHE_BYTES))
        self._cache = cache

    def answer(self, row: StackRow, stack: bytes, column: CellColumn) -> CellAnswer | None:
        """Return the answer of a cell; None: it is new, and the time is over."""
        if column.unusable:
            return CellAnswer("unknown", why=column.unusable, target=column.key)
        if row.stack is None:
            return CellAnswer("unknown", why="; ".join(row.open))
        whole = (self._facts, stack, "", column.identity)
        joined = self._look_up(whole) if column.identity else None
        if joined is not None:
            return joined
        found: list[CellAnswer] = []
        for target in column.targets:
            pools = tuple(pool.name for pool in target.pools)
            key = (self._facts, stack, target.name, pools)
            answer = self._look_up(key)
            if answer is None:
                if time.monotonic() > self._deadline:
                    return None
                answer = answer_cell(
                    row.stack,
                    target,
                    facts=self._snapshot.facts,
                    matrix=self._snapshot.matrix,
                    now=self._now,
                )
                self._cache.put(key, answer, _ANSWER_BYTES + len(answer.why) * 2)
            found.append(answer)
        joined = join_answers(found) if len(found) > 1 else found[0]
        if column.identity:
            size = _ANSWER_BYTES + len(joined.why) * 2 + 60 * len(column.identity)
            self._cache.put(whole, joined, size)
        return joined

    def _look_up(self, key: _CacheKey) -> CellAnswer | None:
        found = self._cache.peek(key)
        if found is None or (found.valid_until and found.valid_until <= self._moment):
            return None
        return found
