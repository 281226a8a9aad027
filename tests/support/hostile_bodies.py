"""Requests that cost far more than they should, unless the gate bounds the work of each.

Every example of every route is changed at every place: a field becomes a long, deep or large value.
To these come bodies that were made for one reader each, forms of pages, and queries. A request is
at most as large as its route accepts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from itertools import islice
from urllib.parse import quote, urlencode

from hostile_readers import of_documents, of_hooks, of_questions
from hostile_values import FORM, HEAD_ROOM, ROOM, VALUES, Attack, encoded, places, with_value

from compatgate.kit.http.requests import parameters
from compatgate.kit.http.route import Route
from compatgate.web.routes import HOOKS, PAGES, ROUTES

__all__ = ["FORM", "Attack", "attacks", "of_documents", "of_hooks", "of_questions"]


def path_of(route: Route) -> str:
    """The path of a request to a route."""
    path = route.prefix + route.template
    for name, largest in route.parameters:
        path = path.replace(f"{{{name}}}", "1" if largest else _NAMES.get(route.path, "prod-a100"))
    return path


_NAMES = {"/entries/{name}": "torch24-cu124", "/waivers/{name}": "legacy-ocr"}


def of_fields(step: int = 1) -> Iterator[Attack]:
    """Each field of each example, with each value; or every so many of these."""
    every = (
        (route, example, body, place, name)
        for route in (*ROUTES, *HOOKS)
        if route.body is not None
        for example, body in route.body.examples.items()
        for place in places(body)
        for name in VALUES
    )
    for route, example, body, place, name in islice(every, 0, None, step):
        about = f"{route.method} {route.path} {example} {_dotted(place)}: {name}"
        yield Attack(about, route.method, path_of(route), with_value(body, place, encoded(name)))


def _dotted(place: tuple[str | int, ...]) -> str:
    return ".".join(map(str, place))


def of_bodies(step: int = 1) -> Iterator[Attack]:
    """Whole bodies for each route: no JSON, too deep, a key twice, white space, wrong text."""
    last = ROOM // 16
    whole = {
        "deep": encoded("deep"),
        "blanks": b" " * ROOM,
        "text": b'"' + b"a" * ROOM,
        "escapes": b'"' + b"\\u0000" * (ROOM // 6) + b'"',
        "a key twice": b"{" + b",".join(b'"key%d": 1' % n for n in [*range(last), last - 1]) + b"}",
        "keys with blanks": b"{" + b", ".join(b'"key%d": 1' % n for n in range(last)) + b"}",
        "no UTF-8": b'{"a": "' + b"\xff" * ROOM + b'"}',
        "a list": b"[" + b"{}," * (ROOM // 4) + b"{}]",
        "open braces": b'{"a":' * (ROOM // 5),
    }
    routes = [route for route in (*ROUTES, *HOOKS) if route.body is not None]
    every = ((route, name, body) for route in routes for name, body in whole.items())
    for route, name, body in islice(every, 0, None, step):
        yield Attack(f"{route.method} {route.path}: {name}", route.method, path_of(route), body)


FORMS: dict[str, tuple[str, ...]] = {
    "/ask/paste": ("pasted", "target", "driver", "gpu", "stack", "image"),
    "/find/paste": ("text",),
    "/ask/keep": ("target", "driver", "gpu", "stack", "image", "set"),
    "/triage/causes": ("text", "target", "driver", "gpu", "stack"),
    "/tokens/new": ("name", "scopes", "expires", "targets"),
    "/tokens/revoke": ("name", "confirmed"),
    "/tokens/rotate": ("name", "overlap"),
    "/proposals/new": ("documents", "reason"),
    "/proposals/1/review": ("what", "comment", "digest"),
    "/proposals/1/act": ("what", "comment"),
    "/proposals/1/merge": ("what", "override", "digest"),
    "/revisions/1/revert": ("reason", "propose"),
    "/entries/torch24-cu124/status": ("status", "replacement", "reason", "revision"),
    "/new-waiver": ("name", "rules", "targets", "image", "components", "owner", "why", "expires"),
    "/new-target": ("documents", "shown", "pasted", "pool-0-gpu", "pool-0-count", "labels", "what"),
    "/new-entry": ("documents", "shown", "components", "targets", "gpus", "what"),
    "/targets/prod-a100/edit": ("documents", "shown", "pool-0-driver", "mode", "revision", "what"),
    "/entries/torch24-cu124/edit": ("documents", "shown", "components", "revision", "what"),
    "/waivers/legacy-ocr/edit": ("documents", "shown", "rules", "expires", "revision", "what"),
    "/import": ("documents", "what"),
    "/waivers/legacy-ocr/end": ("reason", "revision", "how"),
    "/runs/new": ("suite", "target", "stack", "image", "host", "pool", "entry", "priority"),
    "/runs/1/cancel": ("reason",),
    "/runs/1/rerun": ("reason",),
    "/runs/1/discard": ("reason",),
    "/incidents/1/act": ("what", "days", "reason", "back"),
    "/baselines/1/approve": ("reason",),
    "/baselines/1/refuse": ("reason",),
    "/sign-in": ("token", "next"),
    "/sign-out": (),
    "/theme": ("theme", "next"),
    "/preferences": ("theme", "zone_choice", "zone"),
    "/nodes/gpu-17/remove": ("cluster", "reason"),
    "/new-upgrade": (
        "name",
        "target",
        "driver",
        "pool",
        "soak",
        "accepts",
        "rack_labels",
        "reason",
    ),
    "/upgrades/1/act": ("what", "nodes", "wave", "reason"),
    "/upgrades/1/review": ("what",),
}
"""Fields of the forms of pages."""
_FORM_VALUES = ("a long text", "digits", "a long version", "stars", "unknown names", "conditions",
                "alternatives", "hyphens", "wide digits", "lines", "brackets")  # fmt: skip
PASTES = {
    "requirements": lambda: "".join(f"n{n}=={n}\n" for n in range(ROOM // 14)),
    "a package in every line": lambda: "nvidia-cudnn-cu12==9.1.0.70\n" * 30_000,
    "markers": lambda: "torch==2.4.1 ; " + " and ".join(["python_version<'4'"] * 40_000),
    "hashes": lambda: "torch==2.4.1 \\\n" + "  --hash=sha256:0 \\\n" * 40_000,
    "cyclonedx": lambda: json.dumps(
        {"bomFormat": "CycloneDX", "specVersion": "1.5", "components": [
            {"type": "library", "name": f"n{n}", "version": "1", "purl": f"pkg:pypi/n{n}@1"}
            for n in range(10_000)]}),
    "spdx": lambda: json.dumps(
        {"spdxVersion": "SPDX-2.3", "packages": [
            {"name": f"n{n}", "versionInfo": "1"} for n in range(15_000)]}),
    "nvidia-smi": lambda: "| NVIDIA-SMI 535.104.05 Driver Version: 535.104.05 CUDA Version: 12.2|\n"
    + "|   0  NVIDIA A100-SXM4-80GB          On  |\n" * 15_000,
    "conda": lambda: "name: x\ndependencies:\n" + "- pytorch=2.4.1=py3.11_cuda12.4\n" * 25_000,
    "poetry": lambda: "".join(
        f'[[package]]\nname = "n{n}"\nversion = "1"\n' for n in range(20_000)) ,
    "toml": lambda: "a = [" * 100_000,
    "dots": lambda: "a." * 200_000 + "b = 1",
    "kernel log": lambda: "NVRM: Xid (PCI:0000:9b:00): 119, pid=1\n" * 20_000,
}  # fmt: skip


def of_forms(step: int = 1) -> Iterator[Attack]:
    """Forms of pages; whoever sends them puts the token of the form into ``form_token``."""
    every = (
        (path, field, name)
        for path, fields in FORMS.items()
        for field in fields
        for name in _FORM_VALUES
    )
    for path, field, name in islice(every, 0, None, step):
        body = f"{field}={_quoted(name, ROOM // 3)}&form_token=".encode()
        yield Attack(f"POST {path} {field}: {name}", "POST", f"/ui{path}", body, FORM)
    many = "&".join(f"f{n}=1" for n in range(ROOM // 10))
    for path in islice(FORMS, 0, None, step):
        yield Attack(
            f"POST {path}: many fields", "POST", f"/ui{path}", f"{many}&form_token=".encode(), FORM
        )
    for name, make in PASTES.items():
        body = urlencode({"pasted": make()[: ROOM // 2], "form_token": ""}).encode()[:ROOM]
        yield Attack(f"POST /ask/paste: {name}", "POST", "/ui/ask/paste", body, FORM)


_QUERY_VALUES = ("a long text", "digits", "a long version", "stars", "unknown names", "hyphens",
                 "alternatives", "wide digits", "brackets", "a few stars")  # fmt: skip


def of_queries(step: int = 1) -> Iterator[Attack]:
    """Queries of reads and pages."""
    reads = [(path_of(route), route.query) for route in ROUTES if route.method == "GET"]
    reads += [
        (f"/ui{page.path}", page.query)
        for page in PAGES
        if page.method == "GET" and "<" not in page.path
    ]
    every = (
        (path, field, name)
        for path, query in reads
        for field in ("", *parameters(query))
        for name in _QUERY_VALUES
    )
    for path, field, name in islice(every, 0, None, step):
        query = f"{field}={_quoted(name, HEAD_ROOM // 3)[:HEAD_ROOM]}" if field else _MANY
        yield Attack(f"GET {path} {field}: {name}", "GET", f"{path}?{query}")


_MANY = "&".join(["a=1"] * 15_000)


@cache
def _quoted(name: str, most: int) -> str:
    return quote(json.loads(encoded(name))[:most])


def attacks() -> Iterator[Attack]:
    """Every request."""
    yield from of_questions()
    yield from of_hooks()
    yield from of_documents()
    yield from of_bodies()
    yield from of_forms()
    yield from of_queries()
    yield from of_fields()
