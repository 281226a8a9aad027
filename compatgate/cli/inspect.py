"""Run ``compatgate inspect`` and ``probe``: the stack of an image or file, and of a machine."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from compatgate.catalog import load_facts, read_source
from compatgate.check.cli import BUILD, WHEELS
from compatgate.check.question import read_printed
from compatgate.check.stack_sources import (
    Platforms,
    read_dockerfile_stack,
    read_image_reference,
)
from compatgate.check.wheels import read_wheels
from compatgate.core.facts.records import Record
from compatgate.core.stack_values import Wheel
from compatgate.discovery.dockerfile import is_dockerfile
from compatgate.discovery.findings import Inspection
from compatgate.discovery.lockfiles.interface import PackageOrigin
from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.observations import settle
from compatgate.discovery.probe import probe_machine
from compatgate.discovery.stated_stack import attach_remarks, attach_wheels, describe_contents
from compatgate.errors import BadInput, NotFound
from compatgate.kit.cli.options import FORMAT
from compatgate.kit.cli.output import (
    paint,
    print_json,
    read_bytes,
    say,
    strip_controls,
    wants_colour,
    width_of,
    wrap_beside,
    write_output,
)
from compatgate.kit.cli.usage import bounded, command

_LOCKFILES = (".txt", ".in", ".lock", ".toml", ".yml", ".yaml")
_KNOWN = "Dockerfile, lockfile, image in a file, file, wheel or folder, image reference"


class InspectionResult(NamedTuple):
    """The result of an inspection; without origins, the input does not list packages."""

    inspection: Inspection
    wheels: Mapping[str, Wheel] = {}
    origins: Mapping[str, PackageOrigin] | None = None
    records: tuple[Record, ...] = ()


@command(
    """\
[what: PATH|IMAGE]  image reference, image in a file or folder (oci:DIR[:REF], oci-archive:FILE,
                    docker-archive:FILE, tar, .sif, .sqsh), Dockerfile, lockfile, shared library
                    (Linux or Windows), object, static library, fatbinary, cubin, PTX file, wheel or
                    folder
""",
    BUILD,
    """\
--lock FILE  lockfile with any name
--sbom FILE  SBOM (extra: sbom)
""",
    WHEELS,
    """\
--format {text,json} = text
    output format (default: text); check --probe reads the JSON
""",
    epilog="""\
examples:
  compatgate inspect ./build/extension.so
  compatgate inspect cupy_cuda12x-14.2.0-cp311-cp311-manylinux2014_x86_64.whl --format json
  compatgate inspect registry.example/team/app:1.2
  compatgate inspect app.sif
  compatgate inspect Dockerfile --build-arg CUDA=12.4.1
  compatgate inspect --lock uv.lock --read-wheels
  compatgate inspect .venv/lib/python3.11/site-packages
  compatgate inspect .venv/lib/python3.11/site-packages --format json > app.json

exit status: 0 read, also without findings; 2 damaged or unsupported; 3 the registry does not
answer
""",
)
def run(args: argparse.Namespace) -> int:
    """Inspect and print; return 0."""
    named = [what for what in (args.what, args.lock, args.sbom) if what]
    if len(named) != 1:
        hint = "a path, an image, --lock FILE or --sbom FILE"
        raise BadInput("name one input", field="inspect", hint=hint)
    what = named[0]
    found = _read(args, what)
    if args.read_wheels or args.cached_wheels:
        found = _measure_wheels(found, what, network=not args.cached_wheels)
    inspection = found.inspection
    if args.format == "json":
        body = inspection.to_json()
        if found.records:
            body["records"] = [record.to_json() for record in found.records]
        print_json(body)
    else:
        print(_format(what, inspection, found.records))
    return 0


def _read(args: argparse.Namespace, what: str) -> InspectionResult:
    from compatgate.discovery.image.local import is_local_image

    if args.lock:
        return _inspect_lockfile(what)
    if args.sbom:
        return _inspect_sbom(what)
    if is_dockerfile(what) and os.path.isfile(what):
        options = args.build_arg, args.build_stage
        found = read_dockerfile_stack(what, *options, Platforms(), load_facts())
        stack = {k: v for k, v in found.stack.items() if k not in ("open", "conflicts", "unread")}
        left = tuple(found.stack.get("open", ()))
        return InspectionResult(Inspection(stack, found.observations, found.conflicts, left))
    if args.build_arg or args.build_stage:
        hint = "--build-arg applies only to a Dockerfile"
        raise BadInput("is not a Dockerfile", field=what, hint=hint)
    if os.path.isfile(what) and what.endswith(_LOCKFILES):
        return _inspect_lockfile(what)
    exists = os.path.exists(what)
    if is_local_image(what) or not (exists or what.startswith(("/", ".", "~"))):
        image = read_image_reference(what, None, load_facts())
        inspection = Inspection(image.stack_body, image.observations, image.conflicts, image.open)
        return InspectionResult(inspection)
    if exists:
        from compatgate.discovery.local import inspect_path

        facts = load_facts()
        return InspectionResult(inspect_path(what, facts.arch, facts.packages))
    raise NotFound("no file or image has this name", field=what, hint=f"known: {_KNOWN}")


def _measure_wheels(found: InspectionResult, what: str, *, network: bool) -> InspectionResult:
    """Measure wheels of packages without a record; lockfiles count for Linux on x86-64."""
    if found.origins is None:
        hint = "name a lockfile or a bill of materials"
        raise BadInput("does not name wheels", field=f"--read-wheels {what}", hint=hint)
    stack = attach_remarks(found.inspection.stack, (), ())
    read = read_wheels(
        attach_wheels(stack, found.wheels),
        found.origins,
        [("linux", "x86_64")],
        load_facts(),
        network=network,
    )
    for note in read.notes:
        say(f"note: {note}")
    left = tuple(f"{name}: {why}" for name, why in read.stack.get("unmeasured", {}).items())
    inspection = replace(found.inspection, open=(*found.inspection.open, *left))
    return found._replace(inspection=inspection, records=read.records)


def _inspect_lockfile(path: str) -> InspectionResult:
    from compatgate.discovery.lockfiles.read import read_lockfile

    known, data = load_facts().packages, read_bytes(path, "--lock")
    reading = read_lockfile(Path(path), data, known=known, platform=Platform())
    stack, disagreements = settle(reading.observations, reading.arch)
    conflicts = (*reading.conflicts, *disagreements)
    inspection = Inspection(stack, reading.observations, conflicts, reading.open)
    return InspectionResult(inspection, reading.wheels, reading.origins)


def _inspect_sbom(path: str) -> InspectionResult:
    from compatgate.discovery.sbom.read import read_sbom

    facts, signals = load_facts(), read_source("image_signals")
    bill = read_sbom(path, read_bytes(path, "--sbom"), known=facts.packages, signals=signals)
    stack, disagreements = settle(bill.observations)
    conflicts = (*bill.conflicts, *disagreements)
    inspection = Inspection(stack, bill.observations, conflicts, bill.open)
    return InspectionResult(inspection, {}, bill.origins)


def _format(what: str, inspection: Inspection, records: tuple[Record, ...] = ()) -> str:
    colour = wants_colour(sys.stdout)
    stack = dict(inspection.stack)
    measured = stack.pop("measured", {})
    sections: dict[str, list[tuple[str, str]]] = {"": []}
    for name, value in stack.items():
        value = list(value) if name == "alternatives" else value
        text = " ".join(value) or "none" if isinstance(value, list) else str(value)
        sections[""].append((name, _one_line(text)))
    sections["packages, by their own files"] = [
        (name, _one_line(describe_contents(one))) for name, one in measured.items()
    ]
    sections["seen"] = []
    for seen in inspection.observations:
        origin = paint(f"{_one_line(seen.origin)} ({seen.confidence})", "dim", colour=colour)
        sections["seen"].append((seen.component, f"{_one_line(seen.version)}  {origin}"))
    sections["measured"] = []
    for record in records:
        digest = paint(f"sha256 {record.sha256}", "dim", colour=colour)
        code = dict.fromkeys(name for one in record.libraries for name in (*one.sass, *one.ptx))
        text = f"{_one_line(record.wheel)}  {' '.join(code) or 'no GPU code'}  {digest}"
        sections["measured"].append((record.package, text))
    sections["conflicts"] = [(c.component, _one_line(c.message)) for c in inspection.doubts]
    lines = [paint(_one_line(what), "bold", colour=colour)]
    if not inspection.stack:
        lines.append("  no version of a CUDA component and no GPU code found")
    for title, rows in sections.items():
        if title and rows:
            styles = ("bold", "yellow") if title == "conflicts" else ("bold",)
            lines += ["", paint(title, *styles, colour=colour)]
        lines += [f"  {name:<12} {text}" for name, text in rows]
    return "\n".join(lines)


def _one_line(text: str) -> str:
    """Return a text on one line without control characters, valid as Unicode."""
    return strip_controls(text.encode("utf-8", "backslashreplace").decode().replace("\n", "\\n"))


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
def run_probe(args: argparse.Namespace) -> int:
    """Probe and print."""
    document = _look(args)
    encoded = msgspec.json.format(msgspec.json.encode(document), indent=2)
    if args.output:
        write_output(args.output, encoded + b"\n")
    if args.format == "json":
        if not args.output:
            print(encoded.decode())
        return 0
    print(_render_probe(document))
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


def _render_probe(document: dict[str, Any]) -> str:
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
