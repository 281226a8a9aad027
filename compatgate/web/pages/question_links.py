"""Write a question as a link, as a command and as a CI step.

Pages about entries show the verdict on the newest stack that an entry allows, with a link to ask
the same question.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, structs

from compatgate.core.entry_stacks import EntryStacks
from compatgate.core.facts import Facts
from compatgate.core.request import NEEDED_OF_POOL, POOL_CHANGES, parse_changes_text
from compatgate.core.rule import fix_value
from compatgate.core.stack import format_stack, parse_stack_text
from compatgate.core.worded_question import is_exact, read_question
from compatgate.errors import BadInput, quote_error
from compatgate.kit.http.links import link
from compatgate.strict_json import DECODE_ERRORS, DuplicateKeyError, decode_strict
from compatgate.web.page import PageRequest

_Text = Annotated[str, Meta(max_length=6000)]


class Question(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Query parameters of the page Ask.

    Without a target, ``driver``, ``gpu``, ``os`` and ``cpu`` describe a pool. ``stack`` is text or
    JSON; in the changes of ``set`` an empty value removes a component. ``at``: revision or time of
    an older matrix; ``pick``: component to list the versions of.
    """

    target: _Text = ""
    driver: _Text = ""
    gpu: _Text = ""
    os: Literal["", "linux", "windows", "wsl"] = ""
    cpu: Literal["", "x86_64", "aarch64"] = ""
    stack: _Text = ""
    image: _Text = ""
    set: _Text = ""
    at: _Text = ""
    pick: _Text = ""

    def link(self, **changes: str) -> str:
        """Return the link to this question with some fields changed."""
        given = {name: getattr(self, name) for name in self.__struct_fields__}
        return link("ask", **{**given, **changes})

    @property
    def is_complete(self) -> bool:
        """Tell whether the gate can answer the question."""
        where = self.target or self.driver or self.gpu
        return bool(where and (self.stack.strip() or self.image.strip()))

    @property
    def asks_pools(self) -> bool:
        """Tell whether a stack is asked about without a driver: for the pools of the fleet."""
        without = not (self.target or self.driver or self.image.strip() or self.set or self.at)
        return without and bool(self.stack.strip())

    def body(self) -> dict[str, Any]:
        """Return the body of ``POST /gate``."""
        body: dict[str, Any] = {}
        if self.target:
            body["target"] = self.target
        else:
            described = {name: getattr(self, name) for name in ("driver", "gpu", "os", "cpu")}
            body["pool"] = {name: value.strip() for name, value in described.items() if value}
        if self.stack.strip():
            body["stack"] = self.stack_body()
        if self.image.strip():
            body["image"] = self.image.strip()
        if changes := parse_changes_text(self.set):
            body["set"] = changes
        return body

    def stack_body(self) -> dict[str, Any]:
        """Return the stack in the form of requests."""
        text = self.stack.strip()
        if not text.startswith("{"):
            try:
                return parse_stack_text(text)
            except BadInput as error:
                raise error.at("stack") from None
        try:
            found: dict[str, Any] = decode_strict(text.encode())
        except DuplicateKeyError as error:
            raise BadInput(str(error), field=f"stack.{error.key}", hint="state it once") from None
        except (*DECODE_ERRORS, UnicodeEncodeError) as error:
            what = f"is not JSON: {quote_error(error)}"
            raise BadInput(what, field="stack", value=text) from None
        return found

    def with_component(self, name: str, value: str) -> str:
        """Return the link to this question with another version of a component."""
        return self.link(stack=format_stack({**self.stack_body(), name: value}), pick=name)

    def with_fix(self, changes: Mapping[str, Any]) -> str:
        """Return the link to this question with a fix applied."""
        fields: dict[str, str] = {}
        stack = self.stack_body() if self.stack.strip() else None
        more: dict[str, Any] = parse_changes_text(self.set)
        for name, value in changes.items():
            shown = fix_value(value)
            if name in NEEDED_OF_POOL and not self.target and value is not None:
                fields[name] = shown
            elif name not in POOL_CHANGES and stack is not None and not self.image:
                stack = {k: v for k, v in stack.items() if k != name}
                stack |= {} if value is None else {name: shown}
            else:
                more[name] = None if value is None else shown
        if stack is not None:
            fields["stack"] = write_stack(stack)
        return self.link(**fields, set=format_stack(more))


def read_words(
    question: Question, facts: Facts, targets: Collection[str]
) -> tuple[Question, tuple[str, ...]]:
    """Return a question written in words in its exact form, and what was assumed."""
    text = question.stack.strip()
    if not text or text.startswith("{") or is_exact(text):
        return question, ()
    try:
        read = read_question(text, facts, targets)
    except BadInput as error:
        error.field = "stack"
        raise
    changes = {"stack": format_stack(read.stack)}
    for name in ("target", "image", "driver", "gpu"):
        said, field = getattr(read, name), getattr(question, name).strip()
        if said and field and said != field:
            hint = f"the field has {field}: remove one of them"
            raise BadInput(f"the stack names {name} {said}", field="stack", value=said, hint=hint)
        changes[name] = said or field
    if changes["target"] and changes["driver"] and not question.driver:
        changes["set"] = f"driver={changes.pop('driver')}"
    return structs.replace(question, **changes), tuple(one.message for one in read.assumptions)


def write_stack(stack: Mapping[str, Any]) -> str:
    """Return a stack as people type it; what no text can state, as measured files, is left out."""
    text = {
        name: "+".join(value) if isinstance(value, list) else value
        for name, value in stack.items()
        if isinstance(value, str) or (isinstance(value, list) and name in ("arch", "needs"))
    }
    return format_stack({name: value for name, value in text.items() if "," not in value})


def format_curl(url: str, body: dict[str, Any] | None = None) -> str:
    """Return a request to the API as a curl command; with a body, a question."""
    lines = [f"curl -s {shlex.quote(url)}", '-H "Authorization: Bearer $COMPATGATE_TOKEN"']
    if body is not None:
        shown = shlex.quote(msgspec.json.encode(body).decode())
        lines += ["-H 'Content-Type: application/json'", f"-d {shown}"]
    return " \\\n  ".join(lines)


def format_command(body: dict[str, Any], base: str) -> str | None:
    """Return the question as ``compatgate check``; None: its options cannot state the stack."""
    stack = format_stack(body.get("stack", {}))
    if stack.startswith("{"):
        return None
    where = body["target"] if "target" in body else format_stack(body["pool"])
    words = ["compatgate", "check", "--server", base]
    words += ["--target" if "target" in body else "--pool", where]
    for option, value in (("--stack", stack), ("--image", body.get("image", ""))):
        words += [option, value] if value else []
    if changes := format_stack(body.get("set", {})):
        words += ["--set", changes]
    return shlex.join(words)


def format_ci_step(command: str) -> str:
    """Return the command as a GitHub workflow step."""
    return f"""\
- name: Check GPU compatibility
  env:
    COMPATGATE_TOKEN: ${{{{ secrets.COMPATGATE_TOKEN }}}}
  run: |
    {command} --format github"""


def preview_represented(
    ask: PageRequest[Any], target: str, represented: EntryStacks
) -> dict[str, Any]:
    """Return the verdict on the newest stack that represents an entry, if there is one."""
    verdict = None
    stack = represented.stacks[0].to_json() if represented.stacks else {}
    if stack and target in ask.gate.snapshot().targets:
        verdict = ask.gate.preview({"target": target, "stack": stack}).to_json()
    asked = Question(target=target, stack=format_stack(stack)).link()
    return {"verdict": verdict, "stack": stack, "ask": asked}
