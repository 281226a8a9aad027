"""``compatgate inspect``: the stack found in something, each part with where it was seen."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from compatgate.cli.terminal import paint, printable, wants_colour
from compatgate.errors import NotFound

if TYPE_CHECKING:
    import argparse

    from compatgate.discovery.stack import Inspection

HELP = "show the stack in an image, lockfile, wheel, library or folder"

_EXAMPLES = """\
examples:
  compatgate inspect ./build/extension.so
  compatgate inspect cupy_cuda12x-14.2.0-cp311-cp311-manylinux2014_x86_64.whl --format json
  compatgate inspect registry.example/team/app:1.2
  compatgate inspect .venv/lib/python3.11/site-packages
  compatgate inspect registry.example/team/app:1.2 --format cyclonedx > bom.json
  compatgate inspect registry.example/team/app:1.2 --format nfd

exit status: 0 read, also where nothing was found; 2 damaged, or of another kind; 3 no answer of a
registry, or (nfd) no rule can be made of what was found
"""


class Kind(NamedTuple):
    """Something that can be inspected.

    Attributes:
        name: for messages.
        is_one: whether what was named is of this kind.
        inspect: reads it.
    """

    name: str
    is_one: Callable[[str], bool]
    inspect: Callable[[str], Inspection]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command: what to inspect, and the format."""
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "what",
        metavar="PATH|IMAGE",
        help="image reference, lockfile, shared library, object, static library, fatbinary, cubin,"
        " PTX file, wheel or folder",
    )
    parser.add_argument(
        "--format",
        choices=("text", "json", "cyclonedx", "nfd"),
        default="text",
        help="cyclonedx: a bill of materials that check --sbom reads back; nfd: what it needs of a"
        " node, as an image-compatibility spec of NFD (text)",
    )


def run(args: argparse.Namespace) -> int:
    """Inspect and print; 0.

    Raises:
        BadInput: it is damaged, or of no kind that is known.
        Inconclusive: of what was found, no rule of an image-compatibility spec can be made.
        NotFound: there is nothing of that name.
    """
    for kind in KINDS:
        if kind.is_one(args.what):
            inspection = kind.inspect(args.what)
            break
    else:
        names = ", ".join(kind.name for kind in KINDS)
        raise NotFound("there is no such thing", field=args.what, hint=f"known: {names}")
    if args.format == "nfd":
        print(_spec(inspection), end="")
    elif args.format == "json":
        import json

        print(json.dumps(inspection.to_json()))
    elif args.format == "cyclonedx":
        import json

        from compatgate.discovery.sbom.write import to_cyclonedx

        print(json.dumps(to_cyclonedx(args.what, inspection), indent=2))
    else:
        print(_text(args.what, inspection))
    return 0


def _spec(inspection: Inspection) -> str:
    from compatgate.catalog import load_facts
    from compatgate.cli.image_compat.written import spec_text
    from compatgate.discovery.stack.stated import with_remarks

    stack = with_remarks(inspection.stack, inspection.open, ())
    return spec_text(stack, "linux/amd64", load_facts())


def _local(path: str) -> Inspection:
    from compatgate.catalog import load_facts
    from compatgate.discovery.local import inspect_path

    facts = load_facts()
    return inspect_path(path, facts.arch, facts.packages)


_LOCKFILES = (".txt", ".in", ".lock", ".toml", ".yml", ".yaml")


def _is_lockfile(path: str) -> bool:
    return os.path.isfile(path) and path.endswith(_LOCKFILES)


def _lockfile(path: str) -> Inspection:
    from pathlib import Path

    from compatgate.catalog import load_facts
    from compatgate.discovery.lockfiles import Platform, read_lockfile
    from compatgate.discovery.stack import Inspection, settle

    known = load_facts().packages
    data = Path(path).read_bytes()
    reading = read_lockfile(Path(path), data, known=known, platform=Platform())
    stack, disagreements = settle(reading.observations, reading.arch)
    conflicts = (*reading.conflicts, *disagreements)
    return Inspection(stack, reading.observations, conflicts, reading.open)


def _is_reference(what: str) -> bool:
    """A path that does not exist is an image; one that looks like a path is a mistake."""
    return not os.path.exists(what) and not what.startswith(("/", ".", "~"))


def _image(reference: str) -> Inspection:
    from compatgate.catalog import load_facts
    from compatgate.cli.check.pulled import read_reference
    from compatgate.discovery.stack import Inspection

    reading = read_reference(reference, None, load_facts())
    return Inspection(reading.stack_body, reading.observations, reading.conflicts, reading.open)


KINDS: tuple[Kind, ...] = (
    Kind("lockfile", _is_lockfile, _lockfile),
    Kind("file, wheel or folder", os.path.exists, _local),
    Kind("image reference", _is_reference, _image),
)
"""In the order in which they are asked."""


def _text(what: str, inspection: Inspection) -> str:
    from compatgate.discovery.stack.carried import carried_by

    colour = wants_colour(sys.stdout)
    lines = [paint(_shown(what), "bold", colour=colour)]
    measured = inspection.stack.get("measured", {})
    for name, value in inspection.stack.items():
        if name == "measured":
            continue
        shown = " ".join(value) or "none" if isinstance(value, list) else str(value)
        lines.append(f"  {name:<12} {_shown(shown)}")
    if not inspection.stack:
        lines.append("  no version of a CUDA component and no GPU code found")
    if measured:
        lines += ["", paint("packages, by their own files", "bold", colour=colour)]
    lines += (f"  {name:<12} {_shown(carried_by(one))}" for name, one in measured.items())
    if inspection.observations:
        lines += ["", paint("seen", "bold", colour=colour)]
    for seen in inspection.observations:
        where = paint(f"{_shown(seen.origin)} ({seen.confidence})", "dim", colour=colour)
        lines.append(f"  {seen.component:<12} {_shown(seen.version)}  {where}")
    if inspection.doubts:
        lines += ["", paint("conflicts", "bold", "yellow", colour=colour)]
    lines += (f"  {c.component:<12} {_shown(c.message)}" for c in inspection.doubts)
    return "\n".join(lines)


def _shown(text: str) -> str:
    """In one line that no terminal obeys; names of files need not be text."""
    return printable(text.encode("utf-8", "backslashreplace").decode().replace("\n", "\\n"))
