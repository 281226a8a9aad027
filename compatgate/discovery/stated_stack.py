"""Join a detected stack with a stated one.

This module imports the core alone, so that ``check --pool`` and image readers stay light.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from compatgate.core.components import COMPONENTS, MAX_REMARKS
from compatgate.core.stack import SPECIAL_KEYS, Stack, canonical_key, parse_stack
from compatgate.core.stack_values import Wheel
from compatgate.core.versions import agree
from compatgate.discovery.observations import Conflict
from compatgate.errors import BadInput, CompatgateError

Body = dict[str, Any]
_MAX_NAMES = 12
_NAMED_REMARKS = ("wheels", "measured", "unmeasured")
"""Keys that describe parts of the stack by name."""
_REMARKS = (
    "open", "conflicts", "unread", "cuda-compat-use", "content", "alternatives", *_NAMED_REMARKS
)  # fmt: skip


def attach_remarks(stack: Mapping[str, Any], left: Iterable[str], said: Iterable[Conflict]) -> Body:
    """Return a stack in the form of requests, with open questions and conflicts.

    Unreadable parts, and parts above the limits of a question, become open questions.
    """
    body: Body = {}
    sentences = list(left)
    for name, value in stack.items():
        if name == "measured":
            body[name] = {}
            for part, record in value.items():
                try:
                    SPECIAL_KEYS["measured"]({part: record})
                except CompatgateError as error:
                    why = f"what its files hold cannot be used: {error.detail}"
                    sentences.append(f"{part}: {why}")
                else:
                    body[name][part] = record
            continue
        if name in (*_NAMED_REMARKS, "content", "alternatives"):
            body[name] = value
            continue
        try:
            parse_stack({name: value})
        except CompatgateError as error:
            hint = f" ({error.hint})" if error.value is not None and name == "require" else ""
            sentences.append(f"{name}: {error.problem}{hint}")
        else:
            body[name] = value
    messages = [conflict.message for conflict in said]
    return {
        **body,
        **({"open": _limit_sentences(sentences)} if sentences else {}),
        **({"conflicts": _limit_sentences(messages)} if messages else {}),
    }


def _limit_sentences(sentences: list[str]) -> list[str]:
    room = MAX_REMARKS // 2
    if len(sentences) <= room:
        return sentences
    return [*sentences[: room - 1], f"{len(sentences) - room + 1} more of this kind"]


def attach_wheels(body: Body, wheels: Mapping[str, Wheel]) -> Body:
    """Add the known files of the parts to a stack."""
    files = {name: wheel.to_json() for name, wheel in wheels.items() if name in body}
    return {**body, "wheels": files} if files else body


def prefer_detected(shown: Body, stated: Mapping[str, Any]) -> Body:
    """Join the stack of an image with a stated one, which loses; a contradiction is a finding."""
    stated = _canonical_stack(stated)
    said = [f"{name}: stated is {stated[name]}, the image shows {shown[name]}"
            for name in _find_contradictions(shown, stated)]  # fmt: skip
    return merge_bodies(shown, stated, conflicts=said)


def prefer_stated(written: Body, stated: Mapping[str, Any], by: str) -> Body:
    """Join two stacks: the stated one wins and closes questions; a contradiction is a finding."""
    stated = _canonical_stack(stated)
    said = [f"{name}: stated is {stated[name]}, {by} has {written[name]}; what is stated decides"
            for name in _find_contradictions(written, stated)]  # fmt: skip
    # a version may say which CUDA it was built for, minor included
    built = (parse_stack({k: v}).components[k].cuda for k, v in stated.items() if k in COMPONENTS)
    settled = {*stated, *(("cuda",) if any(one and len(one) > 1 for one in built) else ())}
    left = [text for text in written.get("open", ()) if text.partition(": ")[0] not in settled]
    kept = {
        key: {name: of for name, of in written.get(key, {}).items() if name not in stated}
        for key in _NAMED_REMARKS
    }
    return merge_bodies(stated, {**written, "open": left, **kept}, conflicts=said)


def merge_bodies(decides: Body, other: Mapping[str, Any], *, conflicts: Iterable[str] = ()) -> Body:
    """Merge two stacks with canonical names and their remarks; each alternative is merged too."""
    alternatives = {
        name: merge_bodies(one, other, conflicts=conflicts)
        for name, one in decides.get("alternatives", {}).items()
    } or {
        name: merge_bodies(decides, one, conflicts=conflicts)
        for name, one in other.get("alternatives", {}).items()
    }
    remarks: Body = {
        name: [*other.get(name, ()), *decides.get(name, ()), *more]
        for name, more in (("open", ()), ("conflicts", conflicts), ("unread", ()))
    }
    both = {**other, **decides}
    remarks |= {key: {**other.get(key, {}), **decides.get(key, {})} for key in _NAMED_REMARKS}
    remarks["alternatives"] = {
        name: {key: value for key, value in one.items() if key != "alternatives"}
        for name, one in alternatives.items()
    }
    return {
        **{name: value for name, value in both.items() if name not in remarks},
        **{name: values for name, values in remarks.items() if values},
    }


def _canonical_stack(stated: Mapping[str, Any]) -> Body:
    for name, value in stated.items():
        if name not in _REMARKS:
            try:
                parse_stack({name: value})
            except BadInput as error:
                raise error.at("stack") from None
    return {canonical_key(name): value for name, value in stated.items()}


def _find_contradictions(one: Body, other: Body) -> list[str]:
    """Return the names whose values differ; the assumed load mode of packages does not count."""
    ours = {
        name: parse_stack({name: value}) for name, value in other.items() if name not in _REMARKS
    }
    return [name for name, stack in ours.items() if name in one and not _agree(name, stack, one)]


def _agree(name: str, stack: Stack, other: Body) -> bool:
    theirs = parse_stack({name: other[name]})
    ours, other_version = stack.get(name), theirs.get(name)
    if ours and other_version:
        return agree(ours, other_version)
    if stack.cuda_compat and theirs.cuda_compat:
        return agree(stack.cuda_compat, theirs.cuda_compat)
    return stack == theirs


def describe_contents(record: Mapping[str, Any]) -> str:
    """Describe the record of a package: code, links and unread files."""
    libraries = record.get("libraries", ())
    if not libraries and not record.get("unread"):
        return "no GPU code and no link to a GPU library"
    said = []
    code = _sort_names(name for one in libraries for name in one.get("sass", ()))
    code += _sort_names(name for one in libraries for name in one.get("ptx", ()))
    coded = sum(bool(one.get("sass") or one.get("ptx")) for one in libraries)
    if coded:
        where = "1 library" if coded == 1 else f"{coded} libraries"
        said.append(f"{' '.join(_shorten_names(code))} in {where}")
    needs = sorted({name for one in libraries for name in one.get("needs", ())})
    if needs:
        said.append(f"needs {' '.join(_shorten_names(needs))}")
    if record.get("built_for_torch"):
        said.append(f"built for torch {record['built_for_torch']}")
    if unread := record.get("unread"):
        said.append(f"not read: {' '.join(_shorten_names(list(unread)))}")
    return "; ".join(said) or "linked against GPU libraries, no GPU code"


def _sort_names(names: Iterable[str]) -> list[str]:
    return sorted(set(names), key=lambda name: (int("0" + re.sub(r"\D", "", name)), name))


def _shorten_names(names: list[str]) -> list[str]:
    left = len(names) - _MAX_NAMES
    return names if left <= 0 else [*names[:_MAX_NAMES], f"and {left} more"]
