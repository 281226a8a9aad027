"""What reads files that others wrote, each with real samples of them.

A target takes bytes and gives a result or raises `CompatgateError`; anything else is a defect.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import lzma
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import zstandard
from attest_keys import new_key, public_pem, sealed, signer_of
from gpu_binaries import make_archive, make_elf, make_entry, make_fatbin
from sample_runs import GEMM, sample_source

from compatgate.canary.judge.baseline import learn
from compatgate.canary.samples.exchange import baseline_line, head_line
from compatgate.canary.samples.offered import ground_of_sample, read_offered
from compatgate.catalog import load_facts, read_source
from compatgate.cli.check.places import places_of
from compatgate.core.request import parse_pool
from compatgate.discovery.gpucode import read_gpu_code
from compatgate.discovery.gpucode.dynamic import read_dynamic
from compatgate.discovery.gpucode.source import Source
from compatgate.discovery.image import files
from compatgate.discovery.image.blob import Blob
from compatgate.discovery.image.config import read_config
from compatgate.discovery.image.deadline import Deadline
from compatgate.discovery.image.feed import Content, Feed, Member
from compatgate.discovery.image.layers import Layer, Scan
from compatgate.discovery.image.manifest import (
    OCI_INDEX,
    OCI_MANIFEST,
    Descriptor,
    Platform,
    choose,
    parse_config,
    parse_manifest,
)
from compatgate.discovery.image.options import ImageOptions, Limits
from compatgate.discovery.image.stream import Budget, decompressed
from compatgate.discovery.libraries import parse_version_file
from compatgate.discovery.lockfiles import Platform as LockPlatform
from compatgate.discovery.lockfiles import read_lockfile
from compatgate.discovery.neighbours import read_neighbours
from compatgate.discovery.nfd import evaluate, read_spec
from compatgate.discovery.nfd.devices import load_devices
from compatgate.discovery.nvidia_smi import parse_nvidia_smi
from compatgate.discovery.nvidia_smi.pools import observed_pools
from compatgate.discovery.printed import probe_labels
from compatgate.discovery.probe import SCHEMA, read_probe
from compatgate.discovery.sbom import read_sbom
from compatgate.discovery.signals import Signals, read_signals
from compatgate.documents.sources import Source as Text
from compatgate.gate.admission.kinds import load_kinds
from compatgate.gate.admission.loose import mapping
from compatgate.gate.attest.public import key_set, read_keys
from compatgate.gate.attest.verify import Expected, verify
from compatgate.gate.cluster.nodes import printed_nodes, reports
from compatgate.gate.cluster.pods import pod_of
from compatgate.gate.cluster.suggest import Decided, commands, json_patch, plan
from compatgate.gate.nodes.merge import seen_in
from compatgate.not_json import NOT_JSON
from compatgate.wire.node_reports import Report

TESTS = Path(__file__).parents[1]
DISCOVERY = TESTS / "unit" / "discovery"
NEIGHBOURS = TESTS / "fixtures" / "neighbours"
SMALL = 60_000
"""Bytes of the largest sample of a text format: damage in a small one is met sooner."""


class Target(NamedTuple):
    """A reader, and files that it reads."""

    run: Callable[[bytes], object]
    samples: Sequence[bytes]


def targets() -> dict[str, Target]:
    """All readers by name."""
    return {
        **_lockfiles(),
        **_sboms(),
        **_images(),
        **_databases(),
        **_binaries(),
        **_texts(),
        **_smi(),
        **_measured(),
        **_signed(),
        **_neighbours(),
    }


@cache
def _published() -> Any:
    return read_source("image_signals", overlays=[])


@cache
def _signals() -> Signals:
    return read_signals(_published())


def _by_name(folder: Path, read: Callable[[str, bytes], object]) -> dict[str, Target]:
    """A target for each file name, as the name decides the format; the smaller files only."""
    found: dict[str, list[bytes]] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix != ".md":
            found.setdefault(path.name, []).append(path.read_bytes())
    return {
        name: Target(
            partial(read, name), [d for d in data if len(d) <= SMALL] or [min(data, key=len)]
        )
        for name, data in found.items()
    }


def _lockfiles() -> dict[str, Target]:
    platform = LockPlatform("linux", "x86_64", "3.11")

    def read(name: str, data: bytes) -> Any:
        reading = read_lockfile(name, data, platform=platform)
        assert reading.observations or reading.open
        return reading

    named = _by_name(DISCOVERY / "lockfiles" / "files", read)
    samples = [sample for target in named.values() for sample in target.samples]

    def placed(data: bytes) -> object:
        name = "standard input"  # the content says what it is
        observations = read(name, data).observations
        places = places_of("-", name, data, observations)
        assert len(places) == len({seen.component for seen in observations})
        return places

    return {**named, "lock on standard input": Target(placed, samples)}


def _sboms() -> dict[str, Target]:
    def read(name: str, data: bytes) -> object:
        reading = read_sbom(name, data, signals=_published())
        assert reading.observations or reading.open or reading.rest
        return reading

    return _by_name(DISCOVERY / "sbom" / "files", read)


def _archive() -> bytes:
    site = "opt/venv/lib/python3.11/site-packages"
    code = make_elf(DOTnv_fatbin=make_fatbin(make_entry(payload=bytes(2000))))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, data in {
            "var/lib/dpkg/status": _DPKG,
            "lib/apk/db/installed": _APK,
            "var/lib/rpm/Packages": b"\0" * 12 + b"\x61\x15\x06\0" + bytes(600),
            f"{site}/torch-2.4.1.dist-info/METADATA": b"Name: torch\nVersion: 2.4.1+cu124\n\nx\n",
            f"{site}/torch/version.py": b"__version__ = '2.4.1+cu124'\ncuda = '12.4'\n",
            f"{site}/torch/lib/libtorch_cuda.so": code,
            f"{site}/{'long/' * 40}x.so": code,
            "opt/conda/conda-meta/cudnn-8.9.2.26-cuda11_0.json": b"{}",
            "usr/local/cuda/version.json": b'{"cuda": {"version": "12.4.1"}}',
            "usr/lib/libcudnn.so.9.1.0": b"",
            "opt/.wh.old": b"",
        }.items():
            member = tarfile.TarInfo(path)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


_DPKG = b"""\
Package: cuda-cudart-12-4
Status: install ok installed
Version: 12.4.127-1

Package: libcudnn9-cuda-12
Status: install ok installed
Description: cuDNN
 with a second line
Version: 9.1.0.70-1
"""
_APK = b"C:Q1x=\nP:musl\nV:1.2.5-r0\n\nP:libcudart12\nV:12.4.127-r0\n"


def _scan(data: bytes) -> object:
    """A layer from its first byte on, as from a registry that serves just this."""
    descriptor = Descriptor(f"sha256:{hashlib.sha256(data).hexdigest()}", len(data))

    class Registry:
        @contextmanager
        def blob(self, descriptor: Descriptor) -> Iterator[Blob]:
            yield Blob(io.BytesIO(data), descriptor)  # type: ignore[arg-type]

    limits = Limits(unpacked=64 * 1024**2, ratio_from=8 * 1024**2, members=10_000)
    with Deadline(60) as deadline:
        scan = Scan(_signals(), ImageOptions(limits=limits), deadline)
        scan.read([Layer(1, descriptor)], Registry())  # type: ignore[arg-type]
    return scan.seen.findings()


def _with_checksums(data: bytes) -> bytes:
    """A damaged archive whose headers say that they are whole, to get behind that check."""
    fixed = bytearray(data)
    for at in range(0, len(fixed) - 511, 512):
        if fixed[at + 257 : at + 262] == b"ustar":
            fixed[at + 148 : at + 156] = b" " * 8
            fixed[at + 148 : at + 156] = b"%06o\0 " % sum(fixed[at : at + 512])
    return bytes(fixed)


def _images() -> dict[str, Target]:
    digest = "sha256:" + "ab" * 32
    blob = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest, "size": 7}
    layer = {**blob, "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip"}
    manifest = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": blob, "layers": [layer]}
    platforms = [{"os": "linux", "architecture": a} for a in ("amd64", "arm64")]
    index = {
        "schemaVersion": 2,
        "mediaType": OCI_INDEX,
        "manifests": [{**blob, "mediaType": OCI_MANIFEST, "platform": p} for p in platforms],
    }
    config = {
        "os": "linux",
        "architecture": "amd64",
        "config": {
            "Env": [
                "CUDA_VERSION=12.4.1",
                "NV_CUDNN_PACKAGE=libcudnn9-cuda-12=9.1.0.70-1",
                "NVIDIA_REQUIRE_CUDA=cuda>=12.4 brand=tesla,driver>=470,driver<471",
                "TORCH_CUDA_ARCH_LIST=8.0 9.0+PTX",
            ],
            "Labels": {"com.nvidia.cudnn.version": "9.1.0.70", "maintainer": "x"},
        },
        "history": [{"created_by": "RUN pip install torch"}, {"empty_layer": True}],
        "rootfs": {"type": "layers", "diff_ids": [digest]},
    }

    def read_manifest(data: bytes) -> object:
        found = parse_manifest(data, "", "image")
        return choose(found, Platform("linux", "amd64"), "image") if isinstance(found, list) else 0

    def config_of(data: bytes) -> object:
        return read_config(parse_config(data, "image"), _signals(), 2)

    def stream(data: bytes) -> object:
        budget = Budget(Limits(unpacked=64 * 1024**2, ratio_from=8 * 1024**2))
        return sum(map(len, decompressed(io.BytesIO(data), budget)))

    tar = _archive()
    packed = [gzip.compress(tar), zstandard.compress(tar), gzip.compress(tar) + gzip.compress(b"x")]
    return {
        "manifest": Target(read_manifest, [json.dumps(d).encode() for d in (manifest, index)]),
        "config": Target(config_of, [json.dumps(config).encode()]),
        "layer": Target(_scan, [tar]),
        "layer with checksums": Target(lambda data: _scan(_with_checksums(data)), [tar]),
        "packed layer": Target(_scan, packed[:2]),
        "stream": Target(stream, packed),
    }


def _databases() -> dict[str, Target]:
    def read(kind: str, data: bytes) -> object:
        content = Content(Feed([data]), Member(kind, "file", len(data), False))
        with suppress(ValueError):  # which the reader of layers makes a note of
            return files.packages(kind, content, kind, _signals(), lambda: None)
        return None

    stored = (DISCOVERY / "image" / "databases").glob("*.xz")
    rpm = [lzma.decompress(path.read_bytes()) for path in sorted(stored)]
    return {
        "dpkg": Target(partial(read, "dpkg"), [_DPKG]),
        "apk": Target(partial(read, "apk"), [_APK]),
        "rpm": Target(partial(read, "rpm"), rpm),
    }


def _binaries() -> dict[str, Target]:
    fat = make_fatbin(make_entry("sass", 80), make_entry("ptx", 90, "a"))
    elf = make_elf(
        DOTtext=b"\xc3" * 64,
        DOTnv_fatbin=fat + fat,
        __nv_relfatbin=make_fatbin(make_entry("lto", 80)),
        DOTdynamic=b"\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x0e\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0",
        DOTdynstr=b"\0libcudart.so.12\0",
    )
    samples = [elf, fat, make_archive(a=elf, b=elf), make_elf(machine=190)]
    samples.append(b".version 8.4\n.target sm_90a\n.address_size 64\n")

    def by_seeking(data: bytes) -> object:
        return read_gpu_code(io.BytesIO(data), size=len(data))

    def by_stream(data: bytes) -> object:
        return read_gpu_code(io.BytesIO(data), size=len(data), stream=True)

    def dynamic(data: bytes) -> object:
        return read_dynamic(Source(io.BytesIO(data), "x", size=len(data), seekable=True))

    return {
        "gpu code": Target(by_seeking, samples),
        "gpu code in a stream": Target(by_stream, samples),
        "dynamic section": Target(dynamic, [elf]),
    }


def _nodes(facts: Any, data: bytes) -> object:
    """Nodes as they are printed, to what is reported and what is suggested of each."""
    found = printed_nodes(data, "file")
    now = datetime(2026, 11, 21, tzinfo=UTC)
    seen = [
        seen_in(msgspec.convert(report, Report), now, facts)
        for report in reports({node.name: node for node in found}.values(), "c")
    ]
    plans = [plan(node, Decided("not-blessed", "", "550.54.15", ("t",))) for node in found]
    return seen, [(commands(one), json_patch(one)) for one in plans]


def _pods(data: bytes) -> object:
    with suppress(*NOT_JSON):
        return pod_of(mapping(msgspec.json.decode(data)), load_kinds())
    return None


def _texts() -> dict[str, Target]:
    probe = {
        "compatgate": SCHEMA,
        "pools": [{"name": "a", "gpu": "L4", "driver": "550.54.15"}],
        "stack": {"cuda": "12.4"},
    }
    version = b'{"cuda": {"name": "CUDA SDK", "version": "12.4.1"}}'
    labels = {"nvidia.com/gpu.product": "NVIDIA-L4", "nvidia.com/gpu.count": "2",
              "nvidia.com/cuda.driver-version.full": "550.54.15"}  # fmt: skip
    node = {"kind": "Node", "metadata": {"name": "n1", "labels": labels}}
    note = {"compatgate.dev/driver-set": "label=blessed taint=1", "compatgate.dev/target": "t"}
    taint = {"key": "compatgate.dev/driver-not-blessed", "value": "1", "effect": "NoSchedule"}
    live = {"kind": "List", "items": [{**node, "spec": {"taints": [taint]},
            "metadata": {**node["metadata"], "annotations": note, "resourceVersion": "7"},
            "status": {"allocatable": {"nvidia.com/gpu": "8", "cpu": "64"}}}]}  # fmt: skip
    pulled = {"name": "a", "imageID": f"docker-pullable://r.example/a@sha256:{'a' * 64}"}
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    pod = {"metadata": {"name": "p", "namespace": "n", "annotations": note},
           "spec": {"nodeName": "n1", "containers": [
               {"name": "a", "image": "r.example/a:1", "resources": limits}]},
           "status": {"phase": "Running", "containerStatuses": [pulled]}}  # fmt: skip
    nodes = [
        json.dumps({"kind": "List", "items": [node, node]}).encode(),
        "".join(f"{key}={value}\n" for key, value in labels.items()).encode(),
        b"kind: Node\nmetadata:\n  name: n1\n  labels:\n"
        + "".join(f"    {key}: '{value}'\n" for key, value in labels.items()).encode(),
    ]
    facts = load_facts([])
    return {
        "node labels": Target(
            lambda data: probe_labels(data.decode("utf-8", "replace"), facts), nodes
        ),
        "nodes of a cluster": Target(partial(_nodes, facts), [json.dumps(live).encode()]),
        "pods of a cluster": Target(_pods, [json.dumps(pod).encode()]),
        "probe": Target(
            lambda data: read_probe(data.decode("utf-8", "replace")), [json.dumps(probe).encode()]
        ),
        "version.json": Target(
            lambda data: parse_version_file(data.decode("utf-8", "replace"), "version.json"),
            [version],
        ),
    }


def _smi() -> dict[str, Target]:
    folder = TESTS / "fixtures" / "nvidia_smi"
    gpus = load_facts([]).gpus

    def read(data: bytes) -> object:
        return observed_pools(parse_nvidia_smi(data.decode("utf-8", "replace")), gpus)

    forms: dict[str, list[bytes]] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix not in (".md", ".yaml"):
            form = path.name.partition("-")[0]
            forms.setdefault(f"nvidia-smi {form}", []).append(path.read_bytes())
    return {name: Target(read, samples) for name, samples in forms.items()}


def _measured() -> dict[str, Target]:
    facts = load_facts([])
    sample = sample_source(facts)
    offered = read_offered([sample], {"gemm": GEMM}, facts)
    ((found, _),) = offered.samples
    ground, spec = ground_of_sample(found), GEMM.metrics["time"]
    accepted = [(found.head.key, found.values()[0])]
    sources = {found.head.key: found.source}
    learnt = learn(
        ground.workload, ground.sku, ground.family, "time", spec, accepted, sources=sources
    )
    when = found.head.measured_at
    line = baseline_line(learnt, approved_by="mara", approved_at=when)
    lines = "".join(f"{json.dumps(each)}\n" for each in (head_line(when), line))

    def read(data: bytes) -> object:
        text = Text("x.jsonl", data.decode("utf-8", "replace"))
        return read_offered([text], {"gemm": GEMM}, facts)

    return {
        "sample": Target(read, [sample.text.encode()]),
        "baselines": Target(read, [lines.encode()]),
    }


def _signed() -> dict[str, Target]:
    """Envelopes, what is in them, and keys; a damaged one must never be verified."""
    signer = signer_of()
    now = datetime(2026, 11, 21, tzinfo=UTC)
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "stack", "digest": {"sha256": "ab" * 32}}],
        "predicateType": "https://compatgate.dev/attestations/verdict/v1",
        "predicate": {"verdict": "pass", "allowed": True, "validUntil": "2999-01-01T00:00:00Z"},
    }
    payload = json.dumps(statement).encode()
    envelope = json.dumps(sealed(payload, signer)).encode()

    def judge(data: bytes) -> object:
        return verify(data, [signer.public_key], Expected(), now)

    def judge_payload(data: bytes) -> object:
        return judge(json.dumps(sealed(data, signer)).encode())

    keys = [new_key(), new_key("p256")]
    pem = b"".join(map(public_pem, keys))
    published = json.dumps(key_set(read_keys(pem, "keys"))).encode()
    return {
        "envelope": Target(judge, [envelope]),
        "statement": Target(judge_payload, [payload]),
        "keys": Target(lambda data: read_keys(data, "keys"), [pem, published]),
    }


def _neighbours() -> dict[str, Target]:
    def read(data: bytes) -> object:
        draft = read_neighbours([("file", data.decode("utf-8", "replace"))], load_facts())
        assert draft.pools
        return draft

    def check(data: bytes) -> object:
        facts = load_facts()
        pool = parse_pool({"driver": "580.82.07", "gpu": "L4"}, facts.gpus)
        spec = read_spec(data.decode("utf-8", "replace"))
        sets = spec.compatibilities
        return [evaluate(one, [pool], facts.gpus, load_devices()) for one in sets]

    samples = [path.read_bytes() for path in sorted(NEIGHBOURS.glob("*.yaml"))]
    specs = [(NEIGHBOURS / "image-compatibility.yaml").read_bytes(), _SPEC]
    return {"neighbours": Target(read, samples), "nfd": Target(check, specs)}


_SPEC = b"""\
version: v1alpha1
compatibilities:
- rules:
  - name: gpu
    matchFeatures:
    - feature: pci.device
      matchExpressions: {vendor: {op: In, value: ["10de"]}, device: {op: NotIn, value: ["20b0"]}}
    - feature: local.label
      matchExpressions:
        nvidia.com/cuda.driver-version.full: {op: GeLe, value: ["535.1", "600"], type: version}
        nvidia.com/gpu.product: {op: In, value: [NVIDIA-L4]}
  tag: gpu
  weight: 3
"""
