"""Refresh the facts: find unknown releases on a package index, and write them for review.

`survey` compares and writes the result as an overlay. `frameworks`, `libraries` and `packages` find
news and write what the index alone states. `compatgate.discovery.wheels` measures wheels.
"""

from __future__ import annotations

from refresh.index import UNSTATED_BY_INDEX, Bounds, Listing, News
from refresh.survey import Survey, choose_subjects, list_subjects, survey

__all__ = [
    "UNSTATED_BY_INDEX",
    "Bounds",
    "Listing",
    "News",
    "Survey",
    "choose_subjects",
    "list_subjects",
    "survey",
]
