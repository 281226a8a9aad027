"""A real OpenID Connect issuer: npm's certified oidc-provider, in a process of the tests' own.

It is installed by npm into ``.cache/oidc-provider`` once.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx
from node_packages import installed

HERE = Path(__file__).parent / "oidc_provider"
SECRET = "of the pages' client, for tests"
_PATIENCE = 30.0
ADA = {"email": "ada@example.org", "groups": ["platform", "cooks"]}
BO = {"email": "bo@example.org", "groups": ["trainers"]}
CY = {"email": "cy@example.org", "groups": ["cooks"]}
PEOPLE = {"ada": ADA, "bo": BO, "cy": CY}
SETTINGS: dict[str, Any] = {
    "name": "Example ID",
    "client_id": "compatgate",
    "client_secret_env": "OIDC_SECRET",
    "command_line": "compatgate-cli",
    "scopes": ["openid", "profile", "email", "groups"],
    "groups": {
        "platform": ["read", "gate", "bless", "admin"],
        "readers": ["read"],
        "trainers": {"scopes": ["read", "gate"], "targets": ["prod-*"]},
    },
}


class Issuer:
    """A running issuer."""

    def __init__(self, url: str) -> None:
        self.url = url

    def rotate(self) -> None:
        """Sign with a new key from now on, and publish no other."""
        httpx.post(f"{self.url}/test/rotate").raise_for_status()

    def set_people(self, people: dict[str, Any]) -> None:
        """Replace the accounts."""
        httpx.post(f"{self.url}/test/people", json=people).raise_for_status()


@contextmanager
def running(people: dict[str, Any], gate: str, **settings: Any) -> Iterator[Issuer]:
    """Run an issuer whose pages' client belongs to the gate at a URL."""
    given = {
        "people": people,
        "secret": SECRET,
        "redirects": [f"{gate}/ui/sign-in/done"],
        "afterSignOut": [f"{gate}/ui/sign-in"],
        **settings,
    }
    process = subprocess.Popen(
        [
            "node",
            str(HERE / "provider.mjs"),
            str(installed(HERE, "oidc-provider")),
            json.dumps(given),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout
    stop = threading.Timer(_PATIENCE, process.kill)
    stop.start()
    try:
        url = process.stdout.readline().strip()
        stop.cancel()
        assert url.startswith("http://127.0.0.1:"), url
        yield Issuer(url)
    finally:
        stop.cancel()
        process.kill()
        process.wait()
        process.stdout.close()


class Browser:
    """A browser without scripts: it keeps cookies, follows redirections, and sends forms."""

    def __init__(self) -> None:
        self.http = httpx.Client(timeout=_PATIENCE, headers={"Accept": "text/html"})

    def get(self, url: str, until: str = "") -> httpx.Response:
        """Open a page; ``until``: stop before a redirection to an address that begins so."""
        return self._follow(self.http.get(url), until)

    def send(
        self, page: httpx.Response, until: str = "", form: int = 0, **fields: str
    ) -> httpx.Response:
        """Send a form of a page, with the values that it states and those given."""
        found = re.findall(r"<form\b(.*?)>(.*?)</form>", page.text, re.DOTALL)[form]
        action = re.search(r'action="([^"]*)"', found[0])
        stated = {
            name: unescape(value)
            for tag in re.findall(r"<(?:input|button)\b[^>]*>", found[1])
            for name, value in [_field(tag)]
            if name
        }
        url = urljoin(str(page.url), unescape(action[1])) if action else str(page.url)
        return self._follow(self.http.post(url, data={**stated, **fields}), until)

    def sign_in(self, page: httpx.Response, name: str, until: str = "") -> httpx.Response:
        """Sign in on the issuer's pages, and consent."""
        page = self.send(page, login=name, password="any")
        while "oidc" in page.text.lower() and "consent" in page.text and "<form" in page.text:
            page = self.send(page, until)
        return page

    def _follow(self, answer: httpx.Response, until: str) -> httpx.Response:
        for _ in range(20):
            place = answer.headers.get("Location")
            if answer.status_code not in (301, 302, 303, 307) or not place:
                return answer
            target = urljoin(str(answer.url), place)
            if until and target.startswith(until):
                return answer
            answer = self.http.get(target)
        raise AssertionError("too many redirections")


def _field(tag: str) -> tuple[str, str]:
    name = re.search(r'\bname="([^"]*)"', tag)
    value = re.search(r'\bvalue="([^"]*)"', tag)
    return (name[1] if name else "", value[1] if value else "")
