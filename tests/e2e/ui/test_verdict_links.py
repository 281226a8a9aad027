"""Whoever was denied follows the link: the page needs no sign-in, no script and no mouse."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from ui_axe import violations
from ui_pictures import take_picture
from ui_walk import Walk
from werkzeug.serving import make_server

from compatgate.documents.sources import read_paths
from compatgate.kit import clock
from compatgate.resources import matrix_dir
from compatgate.service.gate.service import Gate
from compatgate.service.gate.verdict_links import VerdictLinks
from compatgate.service.matrix.service import Authorship
from compatgate.service.web.app import create_app
from compatgate.service.web.call import Settings
from compatgate.service.webhooks.signatures import Secret

DENIED = {"target": "inference-l4", "stack": {"cuda": "12.4", "arch": ["sm_70"]}}


@pytest.fixture
def link(tmp_path: Path) -> Iterator[str]:
    """The link of a denial, of a gate whose callers need a token for everything else."""
    gate = Gate.open(f"sqlite:///{tmp_path}/gate.db", overlays=[])
    gate.matrix.import_documents(
        read_paths([matrix_dir() / "examples"]), Authorship("tester", "the first")
    )
    server = make_server("127.0.0.1", 0, lambda environ, start: [], threaded=True)
    base = f"http://127.0.0.1:{server.server_port}"
    links = VerdictLinks((Secret("first", b"1" * 32),), base)
    server.app = create_app(gate, Settings(public_url=base, verdict_links=links))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    verdict = gate.decide(DENIED, asked_by="ci", source="rest")
    yield links.link(verdict.id, clock.now())
    server.shutdown()
    thread.join()
    server.server_close()
    gate.close()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 390)])
def test_why_i_was_denied_is_no_click_away(browser, link, scheme, width):
    context = browser.new_context(
        color_scheme=scheme, viewport={"width": width, "height": 900}, reduced_motion="reduce"
    )
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text))
    walk = Walk(page, actions=0)
    walk.open(link)
    assert page.get_by_text("no code for L4").first.is_visible()
    assert page.get_by_role("heading", name="How do I get this allowed?").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    take_picture(page, "shared-verdict" if scheme == "light" else None)
    assert violations(page) == []
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Ask again"
    assert wrong == []
    page.goto(f"{link[:-1]}{'A' if link[-1] != 'A' else 'B'}")
    assert violations(page) == []
    page.get_by_role("link", name="Sign in").click()
    assert page.get_by_label("Token").is_visible()
    context.close()
