"""Run ``compatgate probe``: detect driver, GPUs and stack of a machine or process."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from compatgate.catalog import load_facts
from compatgate.check.question import read_printed
from compatgate.discovery.probe import probe_machine
from compatgate.errors import BadInput
from compatgate.kit.cli.options import FORMAT
from compatgate.kit.cli.output import write_output
from compatgate.kit.cli.terminal import strip_controls, width_of, wrap_beside
from compatgate.kit.cli.usage import bounded, command


@command(
    """\
what to probe (default: this machine):
--pid N               process to inspect for loaded libraries
| --nvidia-smi FILE   output of nvidia-smi on another host, or of cat /etc/nv_tegra_release
                      /proc/device-tree/model on a Jetson ("-": standard input)
| --node-labels FILE  Kubernetes nodes: kubectl get nodes -o json, or labels ("-": standard input)
| --python PATH       Python interpreter or environment to inspect for frameworks
""",
    "--root DIR = /  root folder of the node, if this runs in a container",
    FORMAT,
    "-o, --output FILE  write the JSON document for check --probe",
    epilog="""\
examples:
  compatgate probe
  compatgate probe --python /opt/venv/bin/python -o node17.json
  compatgate probe --pid 4711
  kubectl get nodes -o json | compatgate probe --node-labels -
  compatgate check --probe node17.json --target prod-a100

Reads NVML (extra nvml) or nvidia-smi, /proc/driver/nvidia/version, the dynamic
linker's cache, LD_LIBRARY_PATH and /usr/local/cuda*. Of the node it reads kernel, distribution,
Secure Boot, IOMMU, ACS, DMI and the installed packages, and asks nv-fabricmanager, nvidia-imex,
nvidia-ctk, dcgmi and ofed_info for their versions; what it does not see stays unstated. On a
Jetson it reads /etc/nv_tegra_release and the device tree, also without nvidia-smi.
--python also reads an interpreter's package metadata and torch; --pid the libraries loaded in a
process (/proc/PID), also of a container (docker inspect shows its number). Changes nothing and
sends nothing.
exit status: 0 done, also without a GPU; 2 not found, or permission denied
""",
    pid={"type": bounded("a process number", 1, 2**31 - 1)},
)
def run(args: argparse.Namespace) -> int:
    """Probe and print."""
    document = _look(args)
    encoded = msgspec.json.format(msgspec.json.encode(document), indent=2)
    if args.output:
        write_output(args.output, encoded + b"\n")
    if args.format == "json":
        if not args.output:
            print(encoded.decode())
        return 0
    print(render_probe(document))
    if args.output:
        print(f"\nwritten to {args.output}; check it with: compatgate check --probe {args.output}")
    return 0


def _look(args: argparse.Namespace) -> dict[str, Any]:
    facts = load_facts()
    if args.pid is not None:
        from compatgate.diagnostics.process import probe_process

        return probe_process(args.pid, facts)
    if args.nvidia_smi is not None or args.node_labels is not None:
        return read_printed(args, facts).to_json()

    if not os.path.isdir(args.root):
        raise BadInput("is not a folder", field="--root", value=args.root)
    return probe_machine(facts, python=args.python, root=args.root).to_json()


def render_probe(document: dict[str, Any]) -> str:
    """Return the document as text that fits the terminal."""
    width = width_of(sys.stdout)
    lines = list(_host_lines(document, width))
    if process := document.get("process"):
        lines += ["", *_process_lines(process)]
    lines.append("")
    stack = {k: v for k, v in document["stack"].items() if k not in ("open", "conflicts")}
    lines.append("stack" if stack else "stack: no CUDA library and no framework was found")
    for name, value in stack.items():
        text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
        lines += wrap_beside(f"  {name:<18}  ", text, width)
    for title, texts in (
        ("sources disagree", [c["message"] for c in document["conflicts"]]),
        ("unknown", document["stack"].get("open", [])),
        ("notes", document["host"]["notes"]),
    ):
        if texts:
            lines += ["", title]
            lines += [line for text in texts for line in wrap_beside("  - ", text, width)]
    return "\n".join(lines)


def _host_lines(document: dict[str, Any], width: int) -> Iterator[str]:
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
    if host.get("platform"):
        yield f"platform  {host['platform']}"
    if host.get("node"):
        parts = [f"{name} {value}" for name, value in host["node"].items()]
        yield from wrap_beside("node    ", ", ".join(parts), width)
    for pool, gpu in zip(document["pools"], host["gpus"], strict=False):
        if "nodes" in gpu:
            yield f"nodes   {gpu['nodes']} x {gpu['product']}, driver {pool.get('driver', '?')}"
        else:
            yield f"GPU     {gpu['devices']} x {gpu['product']}"
    if not host["gpus"]:
        yield "GPU     no NVIDIA GPU was found on this machine"


def _process_lines(process: dict[str, Any]) -> Iterator[str]:
    python = f", Python {process['python']}" if process["python"] else ""
    yield strip_controls(f"process {process['pid']}  {process['executable']}{python}")
    for library in process["libraries"]:
        version = library.get("reported") or library.get("name_version") or library.get("major")
        folder, name = os.path.split(library["path"])
        what = f"{library['component']:<12} {version or '?':<12}"
        yield strip_controls(f"  {what} {name}  in {folder}")
    for name, value in process["environment"].items():
        if name.endswith("VISIBLE_DEVICES"):
            yield strip_controls(f"  {name}={value}")
