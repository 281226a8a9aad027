"""Pictures of the main pages for the documentation, at two widths.

``COMPATGATE_SCREENSHOTS=docs/screenshots`` takes and keeps all of them; otherwise one is made and
thrown away.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ui_browser import DESK, PHONE
from ui_pictures import shrink

MAIN = {
    "home": "",
    "attention": "attention",
    "matrix": "matrix?row=torch24-cu124&column=prod-a100",
    "ask": "ask?driver=525.60.13&gpu=A100-SXM4-80GB&stack=cuda%3D12.1,arch%3Dcompute_80",
    "drift": "drift",
    "node": "nodes/gpu-017",
    "run": "runs/run_ef2d127de37b942b",
    "upgrade": "upgrades/prod-580",
    "what-if": "what-if?target=staging-h100&driver=525.60.13",
}
SIGHTS = ("deuteranopia", "protanopia", "tritanopia", "achromatopsia", "reducedContrast")
TAKEN = MAIN if os.environ.get("COMPATGATE_SCREENSHOTS") else {"home": ""}


@pytest.fixture
def folder(tmp_path) -> Path:
    """Where pictures go."""
    kept = Path(os.environ.get("COMPATGATE_SCREENSHOTS") or tmp_path)
    kept.mkdir(parents=True, exist_ok=True)
    return kept


@pytest.mark.parametrize("name", TAKEN)
def test_it_has_its_picture_taken(look_at, folder, name):
    page = look_at(MAIN[name])
    for size in (DESK, PHONE):
        page.set_viewport_size(size)
        page.reload(wait_until="networkidle")  # charts are as wide as the page was at first
        path = folder / f"{name}-{size['width']}.png"
        page.screenshot(path=path)
        shrink(path)
        assert path.stat().st_size > 10_000, path.name


def test_people_with_weak_sight_or_colour_blindness_see_another_matrix(look_at):
    page = look_at(MAIN["matrix"])
    page.wait_for_load_state("networkidle")
    tools = page.context.new_cdp_session(page)
    seen = {page.screenshot()}
    for sight in SIGHTS:
        tools.send("Emulation.setEmulatedVisionDeficiency", {"type": sight})
        seen.add(page.screenshot())
    tools.detach()
    assert len(seen) == 1 + len(SIGHTS)
