"""Write the operations of the API for client and commands, from the routes.

``compatgate/kit/operations.json`` is what they read, ``compatgate/client/operations.pyi`` the types
of the client's methods. ``--check`` only says whether both are current.
"""

from __future__ import annotations

import datetime
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Struct, structs

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from compatgate.kit.http.requests import parameters  # noqa: E402
from compatgate.kit.http.route import OPEN_SCOPES, Route  # noqa: E402
from compatgate.kit.operations import Argument, Declared, Kind, Place  # noqa: E402
from compatgate.web.routes import HOOKS, ROUTES  # noqa: E402

DATA = ROOT / "compatgate/kit/operations.json"
STUB = ROOT / "compatgate/client/operations.pyi"
PAGING = ("limit", "cursor")
EVENTS = "text/event-stream"
HEAD = '''"""The types of the client's methods; made by scripts/operations.py."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, Literal

from compatgate.client.request import Moment, Request, listing, single, stream
from compatgate.kit.http.schemas import Page
'''


def declare(route: Route) -> Declared:
    """Return a route as an operation."""
    returns = route.returns
    pages = "pages" if returns.paged else "lines" if EVENTS in returns.media else "one"
    query = {*parameters(route.query)}
    several = len(returns.media) > 1 and "format" in query
    return Declared(
        name=route.name,
        method=route.method,
        path=route.prefix + route.template,
        about=f"{route.summary}.\n\n{route.description}".strip(),
        answer=answer_name(returns.model),
        form=pages,  # type: ignore[arg-type]
        arguments=tuple(arguments(route, several=several)),
        fixed={"format": "json"} if several else {},
        documents=route.body is not None and len(route.body.media) > 1,
        repeatable=route.repeatable
        or route.method in ("GET", "PUT")
        or (route.method == "POST" and route.scope in OPEN_SCOPES),
        slow=route.slow,
        refusal=route.refusal is not None,
        command=route.command,
        columns=route.columns,
    )


def answer_name(model: Any) -> str:
    """Return the name of an answer's type."""
    if model is str:
        return "text"
    return f"{model.__module__}:{model.__name__}" if is_struct(model) else "json"


def arguments(route: Route, *, several: bool) -> Iterator[Argument]:
    """Yield the arguments of an operation: path, body, query, and those of a change."""
    for name, largest in route.parameters:
        kind: Kind = "text" if largest is None else "number"
        yield Argument(name, "path", "str" if largest is None else "int", kind, required=True)
    body = route.body
    if body and body.argument:
        annotation = "str | Sequence[Mapping[str, Any]]"
        if is_struct(body.model):
            annotation = type_text(body.model, given=True)
        yield Argument(
            body.argument,
            "whole",
            f"{annotation} | None" if body.members else annotation,
            "object",
            required=not body.members,
        )
    if body and (body.members or not body.argument):
        fields = [f for f in structs.fields(body.model) if f.name != "reason"]
        for field in sorted(fields, key=lambda field: not field.required):
            yield argument(field, "body")
    if route.reason:
        place: Place = "body" if route.reason == "body" else "query"
        yield Argument("reason", place, "str", required=True, about="reason of the change")
    for field in structs.fields(route.query):
        hidden = ("reason",) if route.reason else ()
        if (route.returns.paged and field.name in PAGING) or field.name in hidden:
            continue
        if not (several and field.name == "format"):
            yield argument(field, "query")
    if route.matches:
        about = "entity tag or revision that the document must have"
        yield Argument("if_match", "header", "str | int | None", about=about)


def argument(field: structs.FieldInfo, place: Place) -> Argument:
    """Return the argument for a field of a body or a query."""
    about, choices, kind = describe(field.type)
    default = field.default if isinstance(field.default, bool | int | str) else None
    annotation = type_text(field.type, given=True)
    if not field.required and not annotation.endswith("| None"):
        annotation += " | None"
    return Argument(
        field.name,
        place,
        annotation,
        kind,
        sent=field.encode_name if field.encode_name != field.name else "",
        required=field.required,
        default=default,
        choices=choices,
        about=about,
    )


def describe(kind: Any) -> tuple[str, tuple[str, ...], Kind]:
    """Return the description, the choices and the form of a type."""
    about, choices, form = "", (), "object"
    while True:
        if get_origin(kind) is Annotated:
            kind, *others = get_args(kind)
            metas = [meta for meta in others if isinstance(meta, Meta)]
            about = about or next((meta.description for meta in metas if meta.description), "")
            if any((meta.extra or {}).get("day") == "end" for meta in metas):
                form = "until"
        elif get_origin(kind) in (Union, UnionType):
            parts = [part for part in get_args(kind) if part is not NoneType]
            named = [part for part in parts if get_origin(part) is Literal]
            if len(parts) > 1 and len(named) < len(parts):
                return about, choices, form  # type: ignore[return-value]
            choices = tuple(str(one) for part in named[1:] for one in get_args(part))
            kind = parts[0]
        else:
            break
    if get_origin(kind) is Literal:
        return about, (*map(str, get_args(kind)), *choices), "text"
    known = {str: "text", int: "number", bool: "flag", datetime.datetime: "since"}
    if get_origin(kind) in (list, tuple):
        inner = describe(get_args(kind)[0])
        return about, inner[1], "list" if inner[2] == "text" else "object"
    return about, choices, form if form == "until" else known.get(kind, "object")  # type: ignore[return-value]


def is_struct(kind: Any) -> bool:
    """Return whether a type is a struct."""
    return isinstance(kind, type) and issubclass(kind, Struct)


def type_text(kind: Any, *, given: bool = False) -> str:
    """Return a type as source; ``given``: what a caller may give for it."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return type_text(inner[0], given=given)
    if origin in (Union, UnionType):
        parts = [type_text(part, given=given) for part in inner]
        last = ["None"] if "None" in parts else []
        return " | ".join(dict.fromkeys([*(part for part in parts if part != "None"), *last]))
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, inner))}]"
    if kind in (NoneType, Any):
        return "None" if kind is NoneType else "Any"
    if origin in (list, tuple):
        return f"{'Sequence' if given else 'list'}[{type_text(inner[0], given=given)}]"
    if origin is dict:
        texts = ", ".join(type_text(part, given=given) for part in inner)
        return f"{'Mapping' if given else 'dict'}[{texts}]"
    if is_struct(kind):
        return f"{kind.__name__} | Mapping[str, Any]" if given else str(kind.__name__)
    if given and kind in (datetime.datetime, datetime.date):
        return "Moment" if kind is datetime.datetime else "date | str"
    return str(kind.__name__)


def stub(routes: Mapping[str, Route], operations: list[Declared]) -> str:
    """Return the types of the client's methods."""
    lines = []
    for one in operations:
        answer = type_text(routes[one.name].returns.model)
        kind, result = "single", answer
        if one.form == "pages":
            kind, result = "listing", f"Page[{answer}]"
        elif one.form == "lines":
            kind = "stream"
        lines += [
            f"    @{kind}",
            "    @staticmethod",
            f"    def {one.name}({parameters_text(one)}) -> Request[{result}]:",
            f'        """{one.about.partition(chr(10))[0]}"""',
        ]
    body = "\n".join(lines)
    imports = "\n".join(struct_imports(routes.values(), body))
    text = f'{HEAD}{imports}\n\nclass Operations:\n    """The operations, by name."""\n\n{body}\n'
    return ruff(ruff(text, "check", "--quiet", "--fix"), "format")


def parameters_text(one: Declared) -> str:
    """Return the parameters of a method as source."""
    texts = []
    ordered = sorted(one.arguments, key=lambda argument: not argument.positional)
    for argument in ordered:
        if not argument.positional and "*" not in texts:
            texts.append("*")
        default = "" if argument.required else " = None"
        texts.append(f"{argument.name}: {argument.annotation}{default}")
    return ", ".join(texts)


def struct_imports(routes: Any, body: str) -> Iterator[str]:
    """Yield the imports of the structs that a stub names."""
    seen: dict[str, str] = {}

    def walk(kind: Any) -> None:
        if is_struct(kind):
            seen[kind.__name__] = kind.__module__
        for part in get_args(kind):
            walk(part)

    for route in routes:
        walk(route.returns.model)
        for model in [route.query, *([route.body.model] if route.body else [])]:
            walk(model)
            for field in structs.fields(model) if is_struct(model) else ():
                walk(field.type)
    names = set(re.findall(r"\w+", body))
    for name, module in sorted(seen.items()):
        if name in names:
            yield f"from {module} import {name}"


def ruff(text: str, *command: str) -> str:
    """Return a stub as ruff writes it."""
    done = subprocess.run(  # noqa: S603 - fixed arguments
        [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(STUB), "-"],
        input=text, capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    if not done.stdout:
        raise SystemExit(done.stderr)
    return done.stdout


def outputs() -> dict[Path, str]:
    """Return what each file should hold."""
    routes = {route.name: route for route in (*ROUTES, *HOOKS)}
    operations = [declare(route) for route in routes.values()]
    lines = ",\n".join(msgspec.json.encode(one).decode() for one in operations)
    return {DATA: f"[\n{lines}\n]\n", STUB: stub(routes, operations)}


def main() -> None:
    """Write both files, or check them."""
    stale = [
        path for path, text in outputs().items() if not path.exists() or path.read_text() != text
    ]
    if "--check" in sys.argv:
        names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
        sys.exit(f"stale: {names}; run scripts/operations.py" if stale else 0)
    for path, text in outputs().items():
        path.write_text(text)


if __name__ == "__main__":
    main()
