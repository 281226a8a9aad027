"""A probe document for people."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

from compatgate.cli.terminal import printable, width_of, wrap


def as_text(document: dict[str, Any]) -> str:
    """The document in lines that fit the terminal."""
    width = width_of(sys.stdout)
    lines = [*_host_lines(document), *_subject_lines(document), "", *_stack_lines(document, width)]
    stack = document["stack"]
    for title, texts in (
        ("witnesses disagree", [c["message"] for c in document["conflicts"]]),
        ("not known", stack.get("open", [])),
        ("notes", document["host"]["notes"]),
    ):
        if texts:
            lines += ["", title]
            for text in texts:
                first, *rest = wrap(printable(text), width - 4)
                lines += [f"  - {first}", *(f"    {line}" for line in rest)]
    return "\n".join(lines)


def _stack_lines(document: dict[str, Any], width: int) -> Iterator[str]:
    stack = {k: v for k, v in document["stack"].items() if k not in ("open", "conflicts")}
    if not stack:
        yield "stack: no CUDA library and no framework was found"
        return
    yield "stack"
    for name, value in stack.items():
        shown = " ".join(map(str, value)) if isinstance(value, list) else str(value)
        first, *rest = wrap(shown, width - 22)
        yield f"  {name:<18}  {first}"
        yield from (f"  {'':<18}  {line}" for line in rest)


def _host_lines(document: dict[str, Any]) -> Iterator[str]:
    host = document["host"]
    yield f"host    {', '.join(filter(None, (host['os'], host['cpu'])))}"
    drivers = {pool.get("driver") for pool in document["pools"]}
    modules = f" ({host['kernel_modules']} kernel modules)" if host["kernel_modules"] else ""
    if host["driver"]:
        yield f"driver  {host['driver']}{modules}"
    elif len(drivers) > 1:
        yield f"driver  several: {', '.join(sorted(filter(None, drivers)))}"
    else:
        yield "driver  no NVIDIA driver is loaded"
    for pool, gpu in zip(document["pools"], host["gpus"], strict=False):
        if "nodes" in gpu:
            yield f"nodes   {gpu['nodes']} x {gpu['product']}, driver {pool.get('driver', '?')}"
        else:
            yield f"GPU     {gpu['devices']} x {gpu['product']}"
    if not host["gpus"]:
        yield "GPU     no NVIDIA GPU was found on this machine"


def _subject_lines(document: dict[str, Any]) -> Iterator[str]:
    """The process, or the container and its processes."""
    if container := document.get("container"):
        yield ""
        yield f"container  {container['name']} ({container['id'][:12]}), image {container['image']}"
        for process in container["processes"]:
            yield from _process_lines(process)
        if not container["processes"]:
            yield "  no process in it that can be looked at has loaded a CUDA library"
    elif process := document.get("process"):
        yield ""
        yield from _process_lines(process)


def _process_lines(process: dict[str, Any]) -> Iterator[str]:
    python = f", Python {process['python']}" if process["python"] else ""
    yield printable(f"process {process['pid']}  {process['executable']}{python}")
    for library in process["libraries"]:
        version = library.get("reported") or library.get("name_version") or library.get("major")
        folder, name = os.path.split(library["path"])
        yield printable(f"  {library['component']:<12} {version or '?':<12} {name}  in {folder}")
    for name, value in process["environment"].items():
        if name.endswith("VISIBLE_DEVICES"):
            yield printable(f"  {name}={value}")
