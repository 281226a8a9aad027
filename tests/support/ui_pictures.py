"""Pictures of the pages for the documentation, taken by tests that have them open.

``COMPATGATE_SCREENSHOTS=docs/screenshots`` keeps them; nothing is taken otherwise.
"""

from __future__ import annotations

import base64
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ui_runs import PASSED, SLOWER

if TYPE_CHECKING:
    from playwright.sync_api import Page

PICTURES = {
    "ask?target=prod-a100&stack=cuda%3D12.4,cudnn%3D9.1.0,torch%3D2.4.1%2Bcu124&pick=cudnn": (
        "ask-versions"
    ),
    "find?q=torch": "find",
    "triage": "triage",
    "solve?target=prod-a100&want=torch": "solve",
    "targets/prod-a100/plan?driver=580": "plan",
    "targets/prod-a100/report": "report",
    "audit": "audit",
    "audit/verify": "audit-verify",
    "facts": "facts",
    "facts/gpus?q=a100": "facts-table",
    "facts/gpus/A100-SXM4-80GB": "fact",
    "facts/support-lines": "support-lines",
    "rules": "rules",
    "rules/CG202": "rule",
    "tokens": "tokens",
    "targets": "targets",
    "targets/prod-a100": "target",
    "targets/prod-a100/packages": "target-packages",
    "targets/prod-a100/edit": "change-target",
    "entries": "entries",
    "entries/torch29-cu130": "entry",
    "entries/torch29-cu130/edit?status=blessed": "change",
    "waivers": "waivers",
    "waivers/night-run": "waiver",
    "waivers/night-run/edit": "change-waiver",
    "new-entry": "new-entry",
    "new-waiver?rules=CG802&targets=prod-a100&components=torch+~%3D2.2.0": "new-waiver",
    "new-target": "new-target",
    "import": "import",
    "decisions": "decisions",
    "proposals/new": "new-proposal",
    "revisions": "revisions",
    "revisions/2": "revision",
    "revisions/diff?older=1&newer=4": "difference",
    "runs": "runs",
    f"runs/{SLOWER}/steps/conv-forward-0": "run-step",
    f"runs/compare?a={PASSED}&b={SLOWER}": "compare",
    "runs/new": "new-run",
    "baselines": "baselines",
    "baselines/3": "baseline",
    "hosts": "hosts",
    "suites": "suites",
    "workloads": "workloads",
    "workloads/conv-forward": "workload",
    "workloads/conv-forward/history": "history",
    "nodes?search=gpu-01": "nodes",
    "upgrades": "upgrades",
    "new-upgrade?target=prod-a100&driver=580.95.05": "new-upgrade",
    "incidents": "incidents",
    "incidents/1": "incident",
    "keys": "keys",
    "preferences": "preferences",
    "sign-in": "sign-in",
    "signed-out": "signed-out",
    "no-such-page": "not-found",
}
"""Names of pictures by path of the page; other tests take `OTHERS`."""
OTHERS = ("verdict", "proposals", "proposal")
FOLDER = os.environ.get("COMPATGATE_SCREENSHOTS")


def take_picture(page: Page, name: str | None) -> None:
    """Keep a picture of an open page, if it has a name and pictures are wanted."""
    if FOLDER is None or name is None:
        return
    page.wait_for_load_state("networkidle")
    tools = page.context.new_cdp_session(page)
    shot = tools.send("Page.captureScreenshot", {"format": "webp", "quality": 60})
    Path(FOLDER).mkdir(parents=True, exist_ok=True)
    Path(FOLDER, f"{name}.webp").write_bytes(base64.b64decode(shot["data"]))


def shrink(path: Path) -> None:
    """Reduce the colours of a picture that is kept, where Pillow is installed."""
    if FOLDER is None:
        return
    with suppress(ImportError):
        from PIL import Image

        picture = Image.open(path).convert("RGB")
        picture.quantize(128, kmeans=1).save(path, optimize=True)  # keeps the few greens
