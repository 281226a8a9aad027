"""``compatgate probe``: driver, GPUs and stack of this machine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import msgspec

from compatgate.errors import BadInput

if TYPE_CHECKING:
    import argparse

HELP = "find driver, GPUs and stack of this machine"

_EXAMPLES = """\
examples:
  compatgate probe
  compatgate probe --python /opt/venv/bin/python -o node17.json
  compatgate check --probe node17.json --target prod-a100

What it reads: NVML (pip install compatgate[nvml]) or nvidia-smi, /proc/driver/nvidia/version, the
dynamic linker's cache, LD_LIBRARY_PATH, /usr/local/cuda*; with --python that interpreter's package
metadata and its torch. It changes nothing and sends nothing.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command: an interpreter to ask, and where the answer goes."""
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "--python",
        metavar="PATH",
        help="ask this interpreter (or environment) for its frameworks, too",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write the JSON document, for check --probe"
    )


def run(args: argparse.Namespace) -> int:
    """Look and print.

    Raises:
        BadInput: the interpreter cannot be asked, or the file not be written.
    """
    from compatgate.catalog import load_facts
    from compatgate.discovery.probe import probe_machine

    document = probe_machine(load_facts(), python=args.python).to_json()
    encoded = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    if args.output:
        try:
            with open(args.output, "w", encoding="utf-8") as file:
                file.write(encoded + "\n")
        except OSError as error:
            raise BadInput(
                f"cannot write '{args.output}': {error.strerror}", field="--output"
            ) from None
    if args.format == "json":
        if not args.output:
            print(encoded)
        return 0
    print(_text(document))
    if args.output:
        print(f"\nwritten to {args.output}; check it with: compatgate check --probe {args.output}")
    return 0


def _text(document: dict[str, Any]) -> str:
    from compatgate.cli.terminal import width_of, wrap

    width = width_of(sys.stdout)
    host, stack = document["host"], document["stack"]
    lines = _host_lines(host)
    lines.append("")
    if stack:
        lines.append("stack")
        for name, value in stack.items():
            shown = " ".join(value) if isinstance(value, list) else str(value)
            first, *rest = wrap(shown, width - 22)
            lines.append(f"  {name:<18}  {first}")
            lines += [f"  {'':<18}  {line}" for line in rest]
    else:
        lines.append("stack: no CUDA library and no framework was found")
    for title, texts in (
        ("witnesses disagree", [c["message"] for c in document["conflicts"]]),
        ("notes", host["notes"]),
    ):
        if texts:
            lines += ["", title]
            for text in texts:
                first, *rest = wrap(text, width - 4)
                lines += [f"  - {first}", *(f"    {line}" for line in rest)]
    return "\n".join(lines)


def _host_lines(host: dict[str, Any]) -> list[str]:
    lines = [f"host    {host['os']}, {host['cpu']}"]
    modules = f" ({host['kernel_modules']} kernel modules)" if host["kernel_modules"] else ""
    if host["driver"]:
        lines.append(f"driver  {host['driver']}{modules}")
    else:
        lines.append("driver  no NVIDIA driver is loaded")
    if host["gpus"]:
        lines += [f"GPU     {gpu['devices']} x {gpu['product']}" for gpu in host["gpus"]]
    else:
        lines.append("GPU     no NVIDIA GPU was found on this machine")
    return lines
