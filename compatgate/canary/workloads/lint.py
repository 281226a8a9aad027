"""Lint a workload, without running it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from msgspec import Struct

from compatgate.canary.protocol import READERS
from compatgate.canary.workload import Workload
from compatgate.canary.workloads import contents
from compatgate.canary.workloads.contents import PackedFile, list_files
from compatgate.canary.workloads.library import MANIFEST, find_contents, read_suites, read_workload
from compatgate.errors import CompatgateError, ManyProblems, quote_error

Severity = Literal["error", "warning"]
LintMessage = tuple[Severity, str]


class Finding(Struct, frozen=True):
    """A problem of a workload; an error keeps it from showing what it promises."""

    file: str
    severity: Severity
    message: str


_PAGE = "README.md"
_SCRIPT = re.compile(r".+\.(py|sh|bash|pl|rb|js|lua)")
_BY_DIGEST = re.compile(r"(.+@)?sha256:[0-9a-f]{64}")


def lint_workloads(folder: Path) -> tuple[list[Path], list[Finding]]:
    """Check a workload, or all workloads and suites of a folder.

    Return the folders that were checked, and the findings.
    """
    folders, suites = find_contents(folder)
    results = [finding for each in folders for finding in _lint_workload(each)]
    if suites:
        try:
            read_suites(suites)
        except CompatgateError as error:
            results += _errors(suites, error)
    return folders, results


def _lint_workload(folder: Path) -> Iterator[Finding]:
    manifest = folder / MANIFEST
    try:
        workload = read_workload(folder)
        files = {file.path: file for file in list_files(folder)}
    except CompatgateError as error:
        yield from _errors(manifest, error)
        return
    for check in (_check_texts, _check_command, _check_images):
        for severity, message in check(workload, files):
            yield Finding(str(manifest), severity, message)


def _errors(file: Path, error: CompatgateError) -> list[Finding]:
    problems = error.problems if isinstance(error, ManyProblems) else (error,)
    prefix = f"{file}: "
    return [Finding(str(file), "error", p.detail.removeprefix(prefix)) for p in problems]


def _check_texts(workload: Workload, files: dict[str, PackedFile]) -> Iterator[LintMessage]:
    if workload.folder and workload.folder.name != workload.name:
        yield "error", f"the folder {workload.folder.name} must be called {workload.name}"
    if _PAGE not in files:
        yield "error", f"{_PAGE} is missing; write one that says what the workload catches"
    if not workload.catches:
        yield "warning", "catches is empty: list the failures that the workload detects"
    for name, spec in workload.metrics.items():
        if not spec.unit.strip():
            yield "error", f"metrics.{name}: unit is blank (1 for a bare number)"
        if not spec.description.strip():
            yield "warning", f"metrics.{name}: description is missing"
    for name, says in workload.checks.items():
        if not says.strip():
            yield "error", f"checks.{name}: is empty"
    if workload.adapter not in READERS:
        yield "error", f"adapter: {workload.adapter!r} is not known ({', '.join(READERS)})"


def _check_command(workload: Workload, files: dict[str, PackedFile]) -> Iterator[LintMessage]:
    program = workload.command[0]
    shared = {file.path for file in contents.list_shared_modules()}
    named = [
        os.path.normpath(part)
        for part in workload.command
        if part.startswith("./") or (not part.startswith(("/", "-")) and _SCRIPT.fullmatch(part))
    ]
    for path in named:
        if path not in files and path not in shared:
            yield "error", f"command: {path} does not exist in the folder"
    own = files.get(os.path.normpath(program)) if program.startswith("./") else None
    if own and not own.executable:
        yield "error", f"command: {program} is not executable"
    if not named and workload.image.inside:
        what = "names no file of the folder, so the image must contain the program"
        yield "warning", f"command: {what}"
    for path, file in files.items():
        try:
            if path.endswith(".py"):
                compile(file.content, path, "exec", dont_inherit=True)
        except SyntaxError as error:
            yield "error", f"{path}: line {error.lineno} is not Python: {quote_error(error.msg)}"
        except ValueError as error:
            yield "error", f"{path}: is not Python: {quote_error(error)}"


def _check_images(workload: Workload, files: dict[str, PackedFile]) -> Iterator[LintMessage]:
    image = workload.image
    if image.reference and not _BY_DIGEST.fullmatch(image.reference):
        yield "warning", f"image.reference: {image.reference} is not pinned by a digest"
    if image.context is None:
        return
    path = os.path.normpath(os.path.join(image.context, "Dockerfile"))
    if path not in files:
        yield "error", f"image.context: {path} does not exist"
        return
    text = files[path].content.decode(errors="replace")
    for name in contents.find_base_images(text):
        if not _BY_DIGEST.fullmatch(name):
            yield "warning", f"{path}: {name} is not pinned by a digest"
    if image.inside:
        return
    if contents.BASE_ARGUMENT in contents.find_arguments(text):
        what = "nothing is built on the image under test; set inside = true, or set a tool"
        yield "error", f"{path}: ARG {contents.BASE_ARGUMENT}: {what}"
    elif image.tool is None:
        what = "has no tool and cannot run inside: it only ever tests its own image"
        yield "warning", f"image: {what}"
