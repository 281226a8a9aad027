"""Pictures of the main pages for the documentation, at two widths.

``COMPATGATE_SCREENSHOTS=docs/screenshots`` keeps them; otherwise they are made and thrown away.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ui_pictures import shrink

MAIN = {
    "home": "",
    "matrix": "matrix?row=torch24-cu124&column=prod-a100",
    "ask": "ask?driver=525.60.13&gpu=A100-SXM4-80GB&stack=cuda%3D12.1,arch%3Dcompute_80",
    "drift": "drift",
    "node": "nodes/gpu-017",
    "run": "runs/run_ef2d127de37b942b",
    "upgrade": "upgrades/prod-580",
    "what-if": "what-if?target=staging-h100&driver=525.60.13",
}
SIGHTS = ("deuteranopia", "protanopia", "tritanopia")
COLOURED = {
    "run": MAIN["run"],
    "drift": "drift",
    "decisions": "decisions",
    "matrix": MAIN["matrix"],
    "cells": "matrix/cells",
    "upgrade": MAIN["upgrade"],
}
WIDTHS = {1440: 900, 390: 844}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", MAIN)
def test_it_has_its_picture_taken(open_page, tmp_path, name, width):
    folder = Path(os.environ.get("COMPATGATE_SCREENSHOTS") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    page = open_page(MAIN[name], viewport={"width": width, "height": WIDTHS[width]})
    page.wait_for_load_state("networkidle")
    path = folder / f"{name}-{width}.png"
    page.screenshot(path=path)
    shrink(path)
    assert path.stat().st_size > 10_000


def test_pages_are_pictured_as_people_with_colour_blindness_see_them(open_page, tmp_path):
    folder = Path(os.environ.get("COMPATGATE_SCREENSHOTS") or tmp_path) / "sights"
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in COLOURED.items():
        page = open_page(path)
        page.wait_for_load_state("networkidle")
        tools = page.context.new_cdp_session(page)
        seen = {page.screenshot()}
        for sight in SIGHTS:
            tools.send("Emulation.setEmulatedVisionDeficiency", {"type": sight})
            seen.add(page.screenshot(path=folder / f"{name}-{sight}.png", full_page=name == "run"))
        assert len(seen) == 1 + len(SIGHTS), name
