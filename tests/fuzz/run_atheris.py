"""A longer search, led by coverage: ``python tests/fuzz/run_atheris.py NAME -max_total_time=600``.

Needs ``pip install atheris`` (Linux). Without a name, the names are listed. What is found is
written to ``crash-...`` in the current folder; libFuzzer's options follow the name.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import atheris

sys.path.append(str(Path(__file__).parent / "../support"))  # gpu_binaries
with atheris.instrument_imports(include=["compatgate"]):
    from targets import targets

from compatgate.errors import CompatgateError


def main() -> None:
    """Fuzz the named target, from its samples."""
    known = targets()
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in known:
        sys.exit(f"targets: {', '.join(known)}")
    target = known[name]

    def one(data: bytes) -> None:
        with suppress(CompatgateError):
            target.run(data)

    with tempfile.TemporaryDirectory() as corpus:
        for number, sample in enumerate(target.samples):
            Path(corpus, str(number)).write_bytes(sample)
        atheris.Setup([sys.argv[0], *sys.argv[2:], corpus], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
