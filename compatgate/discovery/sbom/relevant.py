"""A first look at a part: most of an image's thousands of packages are no part of a GPU stack."""

from __future__ import annotations

import re

from compatgate.core.components import mention

_OF_PYTHON = re.compile(r"pkg:(?:pypi|conda)/", re.IGNORECASE)
"""Packages that may carry GPU code whatever they are called."""


def may_be_component(*texts: object) -> bool:
    """Tell whether a name or a package URL could be one of a component or GPU package."""
    known = mention()
    return any(
        isinstance(text, str) and bool(_OF_PYTHON.search(text) or known.search(text))
        for text in texts
    )
