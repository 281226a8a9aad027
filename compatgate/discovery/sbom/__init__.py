"""Software bills of materials: what an image or environment holds, as observations of its stack."""

from compatgate.discovery.sbom.interface import SbomReading
from compatgate.discovery.sbom.read import read_sbom

__all__ = ["SbomReading", "read_sbom"]
