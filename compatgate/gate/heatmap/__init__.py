"""The matrix as a map: stacks down, places across, and what is said of each pair."""

from compatgate.gate.heatmap.build import Asked, build, pairs_of
from compatgate.gate.heatmap.fits import Fits, fits_of
from compatgate.gate.heatmap.model import HeatMap, Pair, Spot
from compatgate.gate.heatmap.single import of_entry, on_target

__all__ = [
    "Asked",
    "Fits",
    "HeatMap",
    "Pair",
    "Spot",
    "build",
    "fits_of",
    "of_entry",
    "on_target",
    "pairs_of",
]
