"""Parse a Dockerfile: instructions with their lines, stages, and variables as a build knows them.

Source: docs.docker.com/reference/dockerfile (format, parser directives, ARG scope, ENV, FROM, COPY
--from, here-documents) and moby/buildkit ``frontend/dockerfile/{parser,shell}``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import takewhile

from msgspec import Struct
from msgspec.structs import replace

from compatgate.errors import BadInput, InconclusiveInput

LARGEST_FILE = 1024 * 1024
_MAX_INSTRUCTIONS = 10_000
_LONGEST_VALUE = 16_384
_DIRECTIVE = re.compile(r"#\s*(\w+)\s*=\s*(\S+)\s*")
_WORD = re.compile(r"\s*([A-Za-z]+)(?:\s+|$)")
_HEREDOC = re.compile(r"<<-?\s*([\"']?)([A-Za-z_][A-Za-z0-9_.]*)\1")
_TAKES_HEREDOC = re.compile(r"\s*(?:RUN|COPY|ADD)\s", re.IGNORECASE)
_FLAG = re.compile(r"--([a-z][a-z-]*)(?:=(\S*))?\s*")
PLATFORM_ARGUMENTS = tuple(
    f"{kind}{key}" for kind in ("TARGET", "BUILD") for key in ("OS", "ARCH", "PLATFORM", "VARIANT")
)
"""Arguments that a build has without being given them."""
_NAME = re.compile(r"[A-Za-z_]\w*")
_PIECE = re.compile(
    r"""\\(?P<escaped>.)|'(?P<single>[^']*)'|"(?P<double>(?:\\.|[^"\\])*)\""""
    r"|(?P<blank>\s+)|(?P<plain>.)",
    re.DOTALL,
)
_VARIABLE = re.compile(
    r"\\(?P<escaped>\$)|\$(?P<plain>[A-Za-z_]\w*)"
    r"|\$\{(?P<name>[A-Za-z_]\w*)(?:(?P<how>:?[-+])(?P<other>[^{}]*))?\}|(?P<rest>\$)"
)
_SHELL_VARIABLE = re.compile(
    r"(?P<quoted>'[^'$]*\$[^']*'|\\.)|\$(?P<plain>[A-Za-z_]\w*)|\$\{(?P<name>[A-Za-z_]\w*)(?::?-[^{}]*)?\}"
)
"""A variable in a shell command; not those in single quotes, or behind a backslash."""
_KNOWN = frozenset(
    {
        *("ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK"),
        *("LABEL", "MAINTAINER", "ONBUILD", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME"),
        "WORKDIR",
    }
)


class Instruction(Struct, frozen=True):
    """One instruction: its upper-case word, and its flags (``from`` of ``COPY --from=build``)."""

    word: str
    flags: Mapping[str, str]
    text: str
    body: str
    line: int


class Stage(Struct):
    """A stage of a build, by its name in lower case, if it has one.

    The instructions are those after ``FROM``, without ``ARG``; ``ENV`` sets the variables.
    """

    base: str
    name: str
    line: int
    instructions: list[Instruction] = []
    variables: dict[str, tuple[str, int]] = {}


class Build(Struct, frozen=True):
    """The stages that lead to the one that is built."""

    chain: tuple[Stage, ...]

    @property
    def base(self) -> str:
        """Return the image that the build begins from; ``scratch``: none."""
        return self.chain[0].base


def parse_instructions(text: str, name: str) -> list[Instruction]:
    """Return the instructions of a Dockerfile; ``name`` is the file's in messages."""
    lines = text.splitlines()
    escape = "\\"  # the directive ``# escape=`` stands before all else
    for match in takewhile(bool, (_DIRECTIVE.fullmatch(line.strip()) for line in lines)):
        if match and match[1].lower() == "escape" and match[2] in ("\\", "`"):
            escape = match[2]
            break
    instructions: list[Instruction] = []
    at = 0
    while at < len(lines):
        if not _begins(lines[at]):
            at += 1
            continue
        first = at + 1
        joined, at = _join_lines(lines, at, escape)
        bodies: list[str] = []
        marks = _HEREDOC.findall(joined) if _TAKES_HEREDOC.match(joined) else ()
        for _, mark in marks:
            end = next((n for n in range(at, len(lines)) if lines[n].strip("\t") == mark), None)
            if end is None:
                what = f"its here-document does not end with {mark[:60]}"
                raise BadInput(what, field=f"{name}:{first}")
            bodies.append("\n".join(lines[at:end]))
            at = end + 1
        instructions.append(_instruction(joined, "\n".join(bodies), first, name))
        if len(instructions) > _MAX_INSTRUCTIONS:
            raise BadInput(f"has more than {_MAX_INSTRUCTIONS} instructions", field=name)
    return instructions


def _begins(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _join_lines(lines: list[str], at: int, escape: str) -> tuple[str, int]:
    parts: list[str] = []
    while at < len(lines):
        line = lines[at].rstrip()
        at += 1
        if parts and not _begins(line):  # comments and blank lines may stand within
            continue
        if not line.endswith(escape):
            parts.append(line)
            break
        parts.append(line[:-1])
    return "".join(parts), at


def _instruction(text: str, body: str, line: int, name: str) -> Instruction:
    match = _WORD.match(text)
    word = match[1].upper() if match else ""
    if match is None or word not in _KNOWN:
        shown = text.strip()[:60]
        hint = f"an instruction is one of {', '.join(sorted(_KNOWN))}"
        raise BadInput(f"{shown!r} is not an instruction", field=f"{name}:{line}", hint=hint)
    rest = text[match.end() :]
    flags: dict[str, str] = {}
    while flag := _FLAG.match(rest):
        flags[flag[1]] = flag[2] or ""
        rest = rest[flag.end() :]
    return Instruction(word, flags, rest.strip(), body, line)


def resolve_build(
    instructions: list[Instruction], name: str, arguments: Mapping[str, str], target: str
) -> Build:
    """Return the stages that lead to ``target`` (a name or number; empty: the last stage).

    The build arguments have those of the platform (``TARGETARCH``) among them.
    """
    stages = list(_stages(instructions, name, arguments))
    if not stages:
        raise BadInput(
            "has no FROM", field=name, hint="start the Dockerfile with FROM and an image"
        )
    named = {stage.name: number for number, stage in enumerate(stages) if stage.name}
    at = len(stages) - 1
    if target.isdecimal() and int(target) < len(stages):
        at = int(target)
    elif target:
        if target.lower() not in named:
            hint = f"it has {', '.join(named) or 'no named stage'}"
            raise BadInput(f"has no stage {target[:100]!r}", field=name, hint=hint)
        at = named[target.lower()]
    chain = [stages[at]]
    while (before := named.get(chain[0].base.lower(), at)) < at:
        at = before
        chain.insert(0, stages[at])
    return Build(tuple(chain))


def _stages(
    instructions: list[Instruction], name: str, arguments: Mapping[str, str]
) -> Iterator[Stage]:
    platform = {key: arguments[key] for key in PLATFORM_ARGUMENTS if key in arguments}
    declared = set(platform)
    general: dict[str, str | None] = {}
    inherited: dict[str, dict[str, str | None]] = {}
    stage: Stage | None = None
    scope = general
    for one in instructions:
        where = f"{name}:{one.line}"
        if one.word == "FROM":
            if stage:
                inherited[stage.name] = {key: value for key, (value, _) in stage.variables.items()}
                yield stage
            stage = _begin_stage(one, where, {**platform, **general})
            scope = dict(inherited.get(stage.base.lower(), {}))
        elif one.word == "ARG":
            for key, default in _arguments(one, where, scope):
                outer = general.get(key) if stage else None
                scope[key] = arguments.get(key, outer if default is None else default)
                declared.add(key)
        elif stage is None:
            raise BadInput(
                f"{one.word} stands before FROM", field=where, hint="start the Dockerfile with FROM"
            )
        else:
            stage.instructions.append(_fill(one, scope) if one.word == "RUN" else one)
            for key, text in _pairs(one, where) if one.word == "ENV" else ():
                scope[key] = expand(text, scope, missing="") or ""
                stage.variables[key] = (scope[key] or "", one.line)
    if stage:
        yield stage
    if unused := sorted(set(arguments) - declared):
        hint = f"it declares {', '.join(sorted(declared - set(platform))) or 'none'}"
        raise BadInput(f"has no ARG {unused[0][:100]}", field=name, hint=hint)


def _fill(one: Instruction, scope: Mapping[str, str | None]) -> Instruction:
    """Return a command with the values of the variables that the file gives; others stay."""

    def fill(match: re.Match[str]) -> str:
        if match["quoted"]:
            return match[0]
        known = scope.get(match["plain"] or match["name"])
        return match[0] if known is None else known

    text = _SHELL_VARIABLE.sub(fill, one.text)
    return replace(one, text=text) if len(text) <= _LONGEST_VALUE else one


def _begin_stage(one: Instruction, where: str, scope: Mapping[str, str | None]) -> Stage:
    words = one.text.split()
    if len(words) not in (1, 3) or (len(words) == 3 and words[1].lower() != "as"):
        hint = "like FROM registry.example/team/app:1.2 AS build"
        raise BadInput(f"{one.text[:100]!r} is not an image", field=where, hint=hint)
    base = expand(words[0], scope)
    if not base:
        names = (match["plain"] or match["name"] for match in _VARIABLE.finditer(words[0]))
        unknown = [key for key in names if key and scope.get(key) is None]
        what = f"FROM {words[0][:200]}: {', '.join(unknown) or 'the variable'} has no value"
        key = unknown[0] if unknown else "NAME"
        raise InconclusiveInput(what, field=where, hint=f"give --build-arg {key}=VALUE")
    return Stage(base, words[2].lower() if len(words) == 3 else "", one.line, [], {})


def _arguments(
    one: Instruction, where: str, scope: Mapping[str, str | None]
) -> Iterator[tuple[str, str | None]]:
    for word in split_words(one.text):
        if word.startswith("#"):  # a comment after the arguments
            return
        key, equals, text = word.partition("=")
        if not _NAME.fullmatch(key):
            raise BadInput(f"{word[:60]!r} is not NAME or NAME=VALUE", field=where)
        yield key, expand(text, scope) if equals else None


def _pairs(one: Instruction, where: str) -> Iterator[tuple[str, str]]:
    """Yield the variables of ``ENV A=1 B=2``, or of the older ``ENV A 1``."""
    words = split_words(one.text)
    if words and "=" not in words[0]:
        key, _, value = one.text.partition(" ")
        words = [f"{key}={value.strip()}"]
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise BadInput(f"{word[:60]!r} is not NAME=VALUE", field=where)
        yield key, value


def split_words(text: str) -> list[str]:
    """Split text at blanks outside of quotes, and remove the quotes."""
    words, word, begun = [], "", False
    for match in _PIECE.finditer(text):
        if match["blank"]:
            words += [word] if begun else []
            word, begun = "", False
            continue
        begun = True
        if match["single"] is not None:
            word += match["single"].replace("$", "\\$")
        elif match["double"] is not None:
            word += match["double"].replace('\\"', '"')
        elif match["escaped"]:
            word += "\\$" if match["escaped"] == "$" else match["escaped"]
        else:
            word += match["plain"]
    return words + ([word] if begun else [])


def expand(text: str, scope: Mapping[str, str | None], missing: str | None = None) -> str | None:
    """Return text with its variables; None where a value is not known.

    ``${NAME:-other}`` and ``${NAME:+other}`` are read; patterns (``${NAME#prefix}``) are not.
    ``missing`` stands in place of a value that is not known.
    """
    parts, at = [], 0
    for match in _VARIABLE.finditer(text):
        parts.append(text[at : match.start()])
        at = match.end()
        value = "$" if match["escaped"] else None
        if not match["escaped"] and not match["rest"]:
            value = _value(match, scope)
        value = missing if value is None else value
        if value is None:
            return None
        parts.append(value)
    found = "".join([*parts, text[at:]])
    return found if len(found) <= _LONGEST_VALUE else None


def _value(match: re.Match[str], scope: Mapping[str, str | None]) -> str | None:
    name, how = match["plain"] or match["name"], match["how"] or ""
    known = scope.get(name)
    stated = known is not None and (known != "" or ":" not in how)
    if how.endswith("-"):
        return known if stated else expand(match["other"], scope)
    if how.endswith("+"):
        return expand(match["other"], scope) if stated else ""
    return known
