"""Run ``compatgate matrix export``: write the matrix to one file, or to a folder of files."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

import msgspec

from compatgate.catalog import load_facts
from compatgate.cli.gate import Client, asking
from compatgate.cli.matrix.files import find_revision
from compatgate.documents.edits import edit_file
from compatgate.documents.ownership import owner_of, set_owner
from compatgate.documents.sources import SUFFIXES, read_paths
from compatgate.documents.specs import TYPES, Document, key_of, to_sorted_body
from compatgate.documents.text import to_json, to_yaml
from compatgate.errors import BadInput, quote_error
from compatgate.kit.cli.output import write_output
from compatgate.kit.cli.terminal import say
from compatgate.kit.files import replacing

_FOLDERS = {"Target": "targets", "Entry": "entries", "Waiver": "waivers"}
_MODE = 0o644
Key = tuple[str, str]


@asking(
    "write every document, now or at an older revision",
    """\
-o, --output FILE = -    output file (default: standard output)
| --split DIR            output folder; each new document gets its own file
--at REVISION|TIME       revision or time (default: now)
--sync NAME              export only documents of this sync, without its label
--format {yaml,json} = yaml  output format
""",
    form="",
    epilog="""\
examples:
  compatgate matrix export -o matrix.yaml
  compatgate matrix export --at 41 -o before.yaml
  compatgate matrix export --split ./matrix --sync fleet

Equal matrices give the same bytes. --split edits documents in their files, and keeps comments,
order and form. It adds new documents as KIND/NAME.yaml, and removes documents that are not stored.
""",
)
def export_matrix(args: argparse.Namespace, gate: Client) -> int:
    """Write the matrix."""
    if args.split and args.format == "json":
        raise BadInput("writes YAML", field="--split", hint="omit --format")
    revision = find_revision(gate, args.at, "--at") if args.at else None
    bodies = gate.export_matrix(revision=revision)
    if args.sync or args.split:
        found = [msgspec.convert(body, TYPES[body["kind"]]) for body in bodies]
        if args.sync:
            found = [set_owner(one, None) for one in found if owner_of(one) == args.sync]
        if args.split:
            return _write_folder(Path(args.split), found)
        bodies = [to_sorted_body(document) for document in found]
    text = to_yaml(bodies) if args.format == "yaml" else to_json(bodies)
    write_output(args.output, text.encode())
    return 0


def _write_folder(folder: Path, found: Iterable[Document]) -> int:
    wanted: dict[Key, Document] = {key_of(document): document for document in found}
    known = folder.is_dir() and any(path.suffix in SUFFIXES for path in folder.rglob("*"))
    sources = read_paths([folder]) if known else []
    gpus = load_facts().gpus
    edits = [(source, edit_file(source, wanted, gpus)) for source in sources]
    written = {key for _, edit in edits for key in edit.documents}
    new = {
        folder / _FOLDERS[kind] / f"{name}.yaml": one
        for (kind, name), one in wanted.items()
        if (kind, name) not in written
    }
    places: dict[str, Path] = {}
    for path in new:  # some file systems do not tell cases apart
        other = places.setdefault(str(path).casefold(), path)
        if other != path:
            problem = f"{path.name} and {other.name} differ only in case"
            raise BadInput(problem, field="--split", value=str(path), hint="use -o FILE")
    count = 0
    try:
        for source, edit in edits:
            count += _write(Path(source.file), edit.text, source.text)
            for name in edit.rewritten:
                say(f"note: {source.file}: {name} was rewritten without its comments")
        for path, document in sorted(new.items()):
            path.parent.mkdir(parents=True, exist_ok=True)
            count += _write(path, to_yaml([to_sorted_body(document)]))
    except OSError as error:
        problem = f"cannot write: {quote_error(error)}"
        raise BadInput(problem, field="--split", value=error.filename) from None
    print(f"{len(wanted)} documents, {count} files written")
    return 0


def _write(path: Path, text: str, stored: str | None = None) -> bool:
    """Write a file whose text differs; remove one without documents. Return whether it did."""
    if stored == text:
        return False
    if stored is not None and not text:
        path.unlink()
        return True
    mode = path.stat().st_mode & 0o777 if path.exists() else _MODE
    with replacing(path, mode) as file:
        file.write(text.encode())
    return True
