"""The folder that a refresh writes: files of facts to review, in the shape of an overlay."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import yaml

from compatgate.catalog import open_library, records, sources
from compatgate.catalog.overlay import find_overlays
from compatgate.core.facts.records import Record
from compatgate.errors import BadInput
from compatgate.refresh.news import News

_FORMS = {"cudnn": "facts/cudnn/v1", "nccl": "facts/nccl/v1"}
_WIDTH = 120


class Folder:
    """Files below a folder, laid out as the shipped facts are.

    Args:
        path: of the folder; it is made with the first file.
        overlays: that lie over the shipped facts, below what is written.

    Raises:
        BadInput: it is a file, or the folder of the shipped facts.
    """

    def __init__(self, path: str, overlays: Sequence[str] | None = None) -> None:
        self.path = path
        self._below = [overlay.path for overlay in find_overlays(overlays)]
        self.written: list[str] = []
        real, shipped = os.path.realpath(path), os.path.realpath(sources.facts_dir())
        if real == shipped or real.startswith(f"{shipped}{os.sep}"):
            hint = "name another folder, review its files, then copy them"
            raise BadInput("holds the shipped facts", field="--out", value=path, hint=hint)
        if os.path.exists(path) and not os.path.isdir(path):
            raise BadInput("is not a folder", field="--out", value=path)

    def has(self, package: str, wheel: str, sha256: str | None) -> bool:
        """Tell whether a wheel was measured by an earlier run."""
        return any(
            record.wheel == wheel and sha256 in (None, record.sha256)
            for record in self._records(package)
        )

    def add_record(self, record: Record) -> None:
        """Write the record of a wheel beside those that are in the folder already."""
        kept = {one.wheel: one for one in self._records(record.package)}
        kept[record.wheel] = record
        text = records.to_yaml(record.package, list(kept.values()), with_sources=True)
        self._write(f"packages/{record.package}", text)

    def add_entry(self, news: News) -> None:
        """Write what the index tells of a framework or library, beside what is there already."""
        assert news.entry is not None  # noqa: S101 - the caller checked
        head: dict[str, Any] = {"schema": _FORMS.get(news.facts, "facts/framework/v1")}
        if "/" in news.facts:
            head["component"] = sources.title(news.facts)
        there = self._document(news.facts) or {**head, "releases": []}
        releases = {row["version"]: row for row in there["releases"]}
        key = news.entry["version"]
        releases[key] = {**releases.get(key, {}), **news.entry}
        document = {**there, "releases": list(releases.values())}
        text = yaml.safe_dump(
            document, sort_keys=False, default_flow_style=None, width=_WIDTH, allow_unicode=True
        )
        self._write(news.facts, text)

    def check(self) -> None:
        """Check the written files as overlays of the facts.

        Raises:
            BadInput: one of them cannot be laid over the facts.
        """
        open_library([*self._below, *self.written])

    def _records(self, package: str) -> tuple[Record, ...]:
        facts = f"packages/{package}"
        document = self._document(facts)
        return records.of_document(package, document, self._path(facts)) if document else ()

    def _document(self, facts: str) -> dict[str, Any] | None:
        path = self._path(facts)
        if not os.path.isfile(path):
            return None
        return sources.parse(sources.read_bytes(path), path)

    def _path(self, facts: str) -> str:
        return os.path.join(self.path, *facts.split("/")) + sources.SUFFIX

    def _write(self, facts: str, text: str) -> None:
        path = self._path(facts)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        beside = f"{path}.part"
        with open(beside, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(beside, path)
        if path not in self.written:
            self.written.append(path)
