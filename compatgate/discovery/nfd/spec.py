"""Image-compatibility specs, ``v1alpha1``: their form, read and written.

Sources: kubernetes-sigs/node-feature-discovery ``docs/usage/image-compatibility.md``,
``api/image-compatibility/v1alpha1/spec.go`` and ``api/nfd/v1alpha1/types.go`` (GroupRule,
MatchExpression).
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from compatgate.discovery.neighbours.objects import read_objects
from compatgate.errors import BadInput

VERSION = "v1alpha1"
ARTIFACT_TYPE = "application/vnd.nfd.image-compatibility.v1alpha1"
LAYER_TYPE = "application/vnd.nfd.image-compatibility.spec.v1alpha1+yaml"
MOST_RULES = 1000
_HINT = "see https://kubernetes-sigs.github.io/node-feature-discovery, Image Compatibility"


class Expression(Struct, frozen=True, omit_defaults=True):
    """What a value must be.

    Attributes:
        type: ``version`` makes numbers out of ``1.2.3``.
    """

    op: str = ""
    value: tuple[str, ...] = ()
    type: str = ""


class Term(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Expressions on one feature, which must all hold."""

    feature: str
    match_expressions: dict[str, Expression] = {}
    match_name: Expression | None = None


class Alternative(Struct, frozen=True, rename="camel"):
    """One alternative."""

    match_features: tuple[Term, ...] = ()


class Rule(Struct, frozen=True, rename="camel", omit_defaults=True):
    """All terms, and one of the alternatives where there are some, must hold."""

    name: str
    match_features: tuple[Term, ...] = ()
    match_any: tuple[Alternative, ...] = ()


class Compatibility(Struct, frozen=True, omit_defaults=True):
    """A compatibility set: rules that must all hold."""

    rules: tuple[Rule, ...]
    weight: int = 0
    tag: str = ""
    description: str = ""


class Spec(Struct, frozen=True):
    """What an image asks of a node."""

    version: str
    compatibilities: tuple[Compatibility, ...]


def read_spec(text: str, *, origin: str = "image-compatibility spec") -> Spec:
    """Read a spec.

    Args:
        text: YAML or JSON.
        origin: what to call it in errors.

    Raises:
        BadInput: it is neither, of another version, or of another form.
    """
    bodies = read_objects(text, origin)
    if len(bodies) != 1 or "compatibilities" not in bodies[0]:
        raise BadInput("is no image-compatibility spec", field=origin, hint=_HINT)
    version = bodies[0].get("version")
    if version != VERSION:
        known = f"version {VERSION} is read"
        raise BadInput(f"is of version {version!r}", field=origin, value=version, hint=known)
    try:
        spec = msgspec.convert(_without_nothing(bodies[0]), Spec, strict=False)
    except (msgspec.ValidationError, RecursionError) as error:
        problem = f"is no image-compatibility spec: {error}"
        raise BadInput(problem, field=origin, hint=_HINT) from None
    if sum(len(one.rules) for one in spec.compatibilities) > MOST_RULES:
        raise BadInput(f"has more than {MOST_RULES} rules", field=origin)
    return spec


def write_spec(spec: Spec) -> str:
    """The spec as YAML.

    Values are always quoted: 1e38 is a text to one reader of YAML and a number to Go's.
    """
    import yaml

    class Quoted(str):
        __slots__ = ()

    class Dumper(yaml.SafeDumper):
        pass

    def quoted(dumper: Any, text: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style='"')

    def values(body: Any) -> Any:
        if isinstance(body, dict):
            return {k: [Quoted(v) for v in one] if k == "value" else values(one)
                    for k, one in body.items()}  # fmt: skip
        return [values(one) for one in body] if isinstance(body, list | tuple) else body

    Dumper.add_representer(Quoted, quoted)
    body = values(msgspec.to_builtins(spec))
    text: str = yaml.dump(body, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text


def _without_nothing(value: Any) -> Any:
    """Empty values of YAML stand for nothing, as they do for NFD."""
    if isinstance(value, dict):
        return {k: _without_nothing(v) for k, v in value.items() if v not in (None, "", "null")}
    if isinstance(value, list):
        return [_without_nothing(one) for one in value]
    return value
