"""``compatgate canary fetch``: the workload that an image brings, copied to be read and used."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from compatgate.errors import BadInput, Conflict, NotFound

if TYPE_CHECKING:
    import argparse

    from compatgate.discovery.image.folder import Folder

_EPILOG = """\
The image's /compatgate, with its workload.toml, becomes DIR/NAME. Nothing of it is run: read it,
check it with compatgate canary lint, and name DIR with --workloads or COMPATGATE_WORKLOADS.
exit status: 0 copied, 2 no image, no workload in it, or one that is wrong, 3 no answer
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the action: the image, and where its workload goes."""
    parser.epilog = _EPILOG
    parser.add_argument("image", metavar="IMAGE", help="reference in a registry")
    parser.add_argument(
        "-o",
        "--output",
        metavar="DIR",
        default=".",
        help="destination folder (default: this folder)",
    )
    parser.add_argument(
        "--platform",
        metavar="OS/CPU",
        default="linux/amd64",
        help="platform in a multi-platform image",
    )
    parser.add_argument("--force", action="store_true", help="replace an existing folder")


def run(args: argparse.Namespace) -> int:
    """Copy, and say what.

    Raises:
        NotFound: there is no such image, or it brings no workload.
        ManyProblems: every mistake in its ``workload.toml``; nothing is kept.
        Conflict: the folder is there.
    """
    from tempfile import TemporaryDirectory

    from compatgate.canary.workloads.read import MANIFEST, read_workload

    folder = _folder(args)
    if MANIFEST not in folder.files:
        hint = f"an image brings a workload as /compatgate/{MANIFEST}; see docs/canaries.md"
        raise NotFound("the image brings no workload", field=args.image, hint=hint)
    place = Path(args.output)
    try:
        place.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".fetching-", dir=place) as draft:
            _write(folder, Path(draft) / "workload")
            name = read_workload(Path(draft) / "workload").name
            _put(Path(draft), place / name, replace=args.force)
    except OSError as error:
        raise BadInput(f"cannot write: {error.strerror}", field=str(place)) from None
    print(f"{name}: {len(folder.files)} files of {folder.digest} in {place / name}")
    return 0


def _folder(args: argparse.Namespace) -> Folder:
    from compatgate.canary.workload import FOLDER
    from compatgate.canary.workloads.pack import MOST_BYTES, MOST_FILES
    from compatgate.discovery.image import options_from_environment
    from compatgate.discovery.image.folder import read_folder

    return read_folder(
        args.image,
        FOLDER.strip("/"),
        most_files=MOST_FILES,
        most_bytes=MOST_BYTES,
        platform=args.platform,
        options=options_from_environment(),
    )


def _write(folder: Folder, draft: Path) -> None:
    for path, kept in folder.files.items():
        target = draft / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(kept.data)
        target.chmod(0o755 if kept.executable else 0o644)


def _put(draft: Path, target: Path, *, replace: bool) -> None:
    """Give the folder its name; the one that was there goes with the draft."""
    if target.exists() or target.is_symlink():
        if not replace:
            hint = "name another folder, or replace it with --force"
            raise Conflict("is there already", field=str(target), hint=hint)
        os.rename(target, draft / "before")
    os.rename(draft / "workload", target)
