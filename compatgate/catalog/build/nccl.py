"""NCCL releases, from ``nccl.yaml``."""

from __future__ import annotations

from compatgate.catalog.build.read import Record, ascending, of, pair, pairs, version
from compatgate.core.facts import Nccl, NcclRelease, Pair


def nccl(document: Record) -> Nccl:
    """Each release with the CUDA majors that it was published for."""
    releases = ascending(_release(record) for record in document["releases"])
    first = next(release.version for release in releases if 13 in release.cuda)
    return Nccl(releases, first_cuda13=first)


def _release(record: Record) -> NcclRelease:
    packages = {pair(text)[0] for text in record["deb_rpm_cuda_suffixes_seen"] or ()}
    majors = tuple(sorted({*record["cuda_majors_of_wheels"], *packages}))
    return NcclRelease(
        version("nccl", record["version"]), majors, _capabilities(record, majors), of(record)
    )


def _capabilities(record: Record, majors: tuple[int, ...]) -> dict[int, Pair]:
    """As the file concludes for wheels; for packages the lowest of the default code generation."""
    stated = record["min_cc_derived"] or {}
    found = {int(name.removeprefix("cu")): pair(text) for name, text in stated.items()}
    for cuda, generated in (record["default_gencode_by_build_cuda"] or {}).items():
        major = pair(cuda)[0]
        if generated and major in majors:
            found.setdefault(major, pairs(generated["sass"])[0])
    return dict(sorted(found.items()))
