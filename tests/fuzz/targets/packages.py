"""What says which packages there are: lockfiles and bills of materials."""

from __future__ import annotations

from typing import Any

from known_packages import PACKAGES

from compatgate.check.stack_sources import places_of
from compatgate.discovery.dockerfile import read_dockerfile
from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.lockfiles.read import read_lockfile
from compatgate.discovery.sbom.read import read_sbom
from targets.target import DISCOVERY, Target, by_name, published


def targets() -> dict[str, Target]:
    """Readers of lockfiles and of bills of materials."""
    return {**_lockfiles(), **_sboms(), "Dockerfile": Target(_dockerfile, _DOCKERFILES)}


_DOCKERFILES = (
    b"""# escape=\\
ARG R=nvcr.io/nvidia
FROM --platform=$BUILDPLATFORM ${R}/cuda:${TAG:-12.4.1}-devel AS base
ENV CUDA_VERSION=12.4.1 NVIDIA_REQUIRE_CUDA="cuda>=12.4" \\
  LD_LIBRARY_PATH=/usr/local/cuda/compat:$LD_LIBRARY_PATH
FROM base
COPY --from=base /a /a
RUN apt-get install -y libcudnn9-cuda-12=9.1.0.70-1 && pip install -i https://x/cu124 torch==2.4.1
RUN <<EOF
conda install -c nvidia cuda-version==12.4
EOF
""",
    b'FROM a\nRUN ["pip", "install", "torch==2.4.1"]\nENV A 1\nENV B=$A$A\n',
)


def _dockerfile(data: bytes) -> object:
    return read_dockerfile("Dockerfile", data, known=PACKAGES, signals=published())


def _lockfiles() -> dict[str, Target]:
    platform = Platform("linux", "x86_64", "3.11")

    def read(name: str, data: bytes) -> Any:
        reading = read_lockfile(name, data, known=PACKAGES, platform=platform)
        assert reading.observations or reading.open
        return reading

    named = by_name(DISCOVERY / "lockfiles" / "files", read)
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
        reading = read_sbom(name, data, known=PACKAGES, signals=published())
        assert reading.observations or reading.open
        return reading

    return by_name(DISCOVERY / "sbom" / "files", read)
