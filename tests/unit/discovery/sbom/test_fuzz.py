"""Damaged bills of materials: an answer or an error of ours, and nothing else."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from known_packages import PACKAGES

from compatgate.catalog import read_source
from compatgate.discovery.sbom.read import read_sbom
from compatgate.errors import CompatgateError

SIGNALS = read_source("image_signals", overlays=[])
FILES = sorted((Path(__file__).parent / "files").glob("*.[cs]*"))
PIECES = (
    '"',
    "[",
    "]",
    "{",
    "}",
    ":",
    ",",
    "<",
    ">",
    "</",
    "&",
    "null",
    "3",
    "\n",
    "pkg:pypi/torch@",
)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
@given(data=st.data())
def test_a_damaged_document_gives_an_answer_or_an_error_that_explains_itself(path, data):
    text = path.read_text()
    for _ in range(data.draw(st.integers(1, 5))):
        start = data.draw(st.integers(0, len(text)))
        end = start + data.draw(st.integers(0, 60))
        text = text[:start] + data.draw(st.sampled_from([*PIECES, ""])) + text[end:]
    with contextlib.suppress(CompatgateError):
        reading = read_sbom(path.name, text.encode(), known=PACKAGES, signals=SIGNALS)
        assert reading.observations or reading.open


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.text(max_size=8)
    | st.just("pkg:pypi/torch@1"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "name", "version", "purl", "bom-ref", "components", "properties"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(components=VALUES, metadata=VALUES)
def test_components_of_any_shape_give_an_answer_or_an_error(components, metadata):
    body = {"bomFormat": "CycloneDX", "specVersion": "1.6", "components": components}
    with contextlib.suppress(CompatgateError):
        read_sbom(
            "sbom.json",
            json.dumps({**body, "metadata": metadata}).encode(),
            known=PACKAGES,
            signals=SIGNALS,
        )
