"""Refresh the facts: find what a package index has and the facts do not, and write it for review.

`survey` compares, `frameworks` and `libraries` write what the index alone can tell of a release,
`folder` writes the result in the shape of an overlay. Wheels are measured by
`compatgate.discovery.wheels`.
"""

from __future__ import annotations

from compatgate.refresh.index import NOT_TOLD, Bounds, Listing, News
from compatgate.refresh.survey import Survey, chosen, followed, survey

__all__ = ["NOT_TOLD", "Bounds", "Listing", "News", "Survey", "chosen", "followed", "survey"]
