"""The matrix as a map: stacks down, places across, and what is said of each pair."""

from compatgate.gate.heatmap.build import Asked, build, pairs_of
from compatgate.gate.heatmap.fits import Fits
from compatgate.gate.heatmap.model import HeatMap, Pair, Spot

__all__ = ["Asked", "Fits", "HeatMap", "Pair", "Spot", "build", "pairs_of"]
