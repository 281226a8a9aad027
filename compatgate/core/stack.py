"""Read a stack: the components and packages of one workload, and the GPU code that it carries."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, structs

from compatgate.core.components import (
    COMPONENTS,
    FRAMEWORKS,
    MAX_KEYS,
    MAX_NAME_LENGTH,
    MAX_STACKS,
    OF_BUILDS,
    check_count,
    check_length,
    resolve_component,
    sort_components,
)
from compatgate.core.gpu_code import Arch
from compatgate.core.needs import Needs
from compatgate.core.node import NODE_COMPONENTS
from compatgate.core.performance import lazy_property
from compatgate.core.stack_values import (
    VALUE_READERS,
    CompatUse,
    Wheel,
    read_version_text,
    split_code,
)
from compatgate.core.versions import Version, format_parts, parse_version
from compatgate.errors import BadInput

if TYPE_CHECKING:
    from compatgate.core.facts.records import Record

_FIELDS = {
    "arch": "arch",
    "needs": "needs",
    "cuda-compat": "cuda_compat",
    "cuda-compat-use": "compat_use",
    "require": "require",
    "disable-require": "disable_require",
    "open": "open",
    "conflicts": "conflicts",
    "unread": "unread",
    "wheels": "wheels",
    "measured": "measured",
    "unmeasured": "unmeasured",
    "content": "content",
    "alternatives": "alternatives",
}
"""Keys that are not components, and their fields."""


class Stack(Struct, frozen=True, dict=True):
    """The software of one workload."""

    # canonical name to version, in canonical order; never the driver, which belongs to the pool
    components: dict[str, Version]
    # SASS and PTX that the workload carries, without the parts in ``measured``; None when not
    # stated
    arch: tuple[Arch, ...] | None = None
    # normalised name to version, by name: other packages with GPU code or links to CUDA
    packages: dict[str, Version] = {}
    # GPU code that is stated for one part (``flash-attn=2.8.3[sm_90]``), by name
    code: dict[str, tuple[Arch, ...]] = {}
    # the files that parts are installed from, by name, where they are known
    wheels: dict[str, Wheel] = {}
    # records of parts' files where the stack was read from them (an image, a folder), by name; they
    # take precedence over records of published wheels
    measured: dict[str, Record] = {}
    # CUDA version of the forward-compatibility package in the image
    cuda_compat: Version | None = None
    compat_use: CompatUse = "always"  # when that package is loaded
    require: tuple[str, ...] = ()  # ``NVIDIA_REQUIRE_*`` expressions of the image; all must hold
    disable_require: bool = False
    image: str | None = None  # the reference that the stack was read from, for waivers and messages
    needs: Needs | None = None  # what the workload needs of each GPU; None when not stated
    # what a lockfile, bill of materials or image left open; each makes the answer unknown
    open: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    # what was not read, in words; the answer reports it without weight
    unread: tuple[str, ...] = ()
    # why a package has no record although its wheel was requested, by release
    # (``xformers==0.0.35``)
    unmeasured: dict[str, str] = {}
    assumed: tuple[str, ...] = ()  # why ``components`` has a CUDA that nothing states, in words
    # digest of the GPU content that the image holds; None where no image was read. A changed stack
    # has none: no image with it was read.
    content: str | None = None
    # stacks that may run in place of this one, by name: other installations in the image, other
    # images of the index. Each is judged, and the worst counts.
    alternatives: dict[str, Stack] = {}

    def get(self, name: str) -> Version | None:
        """Return the version of a component or package; None when the stack does not state it."""
        return self.versions.get(name)

    @lazy_property
    def versions(self) -> dict[str, Version]:
        """Return components and packages, in canonical order."""
        return {**self.components, **self.packages} if self.packages else self.components

    def to_json(self) -> dict[str, Any]:
        """Return the stack in the form that requests and answers carry, in canonical order."""
        body: dict[str, Any] = {name: version.text for name, version in self.versions.items()}
        for name, code in self.code.items():
            if code and name in body:
                body[name] += f"[{'+'.join(one.name for one in code)}]"
        if self.arch is not None:
            body["arch"] = [a.name for a in self.arch]
        if self.needs:
            body["needs"] = self.needs.to_json()
        if self.cuda_compat:
            body["cuda-compat"] = self.cuda_compat.text
            if self.compat_use != "always":
                body["cuda-compat-use"] = self.compat_use
        if self.require:
            body["require"] = list(self.require)
        if self.disable_require:
            body["disable-require"] = True
        if self.open:
            body["open"] = list(self.open)
        if self.conflicts:
            body["conflicts"] = list(self.conflicts)
        if self.unread or self.assumed:
            body["unread"] = [*self.unread, *self.assumed]
        if self.wheels:
            body["wheels"] = {name: wheel.to_json() for name, wheel in self.wheels.items()}
        if self.measured:
            body["measured"] = {name: one.to_stack() for name, one in self.measured.items()}
        if self.unmeasured:
            body["unmeasured"] = self.unmeasured
        if self.content:
            body["content"] = self.content
        if self.alternatives:
            body["alternatives"] = {n: one.to_json() for n, one in self.alternatives.items()}
        return body


def parse_stack(body: Mapping[str, Any], *, image: str | None = None) -> Stack:
    """Read a stack from its JSON form.

    Args:
        body: ``{"cuda": "12.4", "torch": "2.4.1+cu121", "arch": ["sm_80"], ...}``; any alias of a
            component's name is accepted, and every other name is a package.
    """
    return _make_stack(_read_parts(body), image)


class _Parts(Struct):
    components: dict[str, Version] = {}
    packages: dict[str, Version] = {}
    code: dict[str, tuple[Arch, ...]] = {}
    special: dict[str, Any] = {}


def _read_parts(body: Mapping[str, Any]) -> _Parts:
    check_count(len(body), MAX_KEYS, "keys")
    parts = _Parts()
    for key, value in _join_jaxlib(_label_jax(body)).items():
        if not isinstance(key, str):
            raise BadInput("a key must be text", field=str(key), value=key)
        name = _normalise_key(key)
        if name not in SPECIAL_KEYS:
            _read_version(parts, key, value)
            continue
        _refuse_repetition(parts.special, name, key)
        try:
            parts.special[name] = SPECIAL_KEYS[name](value)
        except BadInput as error:
            error.field = error.field or name
            raise
    return parts


def is_repeated(name: str, other: str) -> bool:
    """Tell whether two keys of a stack state one part twice; JAX and its jaxlib do not."""
    if {_normalise_key(name), _normalise_key(other)} == {"jax", "jaxlib"}:
        return False
    return canonical_key(name) == canonical_key(other)


_JAX_EXTRA = re.compile(r"\s*(jax(?:lib)?)\[cuda(\d\d)[\w-]*\]\s*", re.IGNORECASE)


def _label_jax(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a body in which the CUDA of JAX's extra is its label: ``jax[cuda12]=0.4.30``."""
    if not any(isinstance(key, str) and "[" in key for key in body):
        return body
    labelled = {}
    for key, value in body.items():
        match = _JAX_EXTRA.fullmatch(key) if isinstance(key, str) else None
        if match and isinstance(value, str) and "+" not in value:
            labelled[match[1]] = f"{value}+cuda{match[2]}"
        else:
            labelled[key] = value
    return labelled


def _join_jaxlib(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Join jaxlib with the JAX beside it, as ``pip list`` shows both; each alone names JAX.

    The version is that of JAX, which may be a patch ahead; but that of a jaxlib 0.1, whose numbers
    are others. The label that says the CUDA is that of jaxlib (``jaxlib=0.4.28+cuda12.cudnn89``).
    """
    names = {_normalise_key(key): key for key in body if isinstance(key, str)}
    if not {"jax", "jaxlib"} <= names.keys():
        return body
    jax, jaxlib = body[names["jax"]], body[names["jaxlib"]]
    if not (isinstance(jax, str) and isinstance(jaxlib, str)):
        return body
    label = "" if "+" in jax else "".join(jaxlib.partition("+")[1:])
    rest = {key: value for key, value in body.items() if key != names["jaxlib"]}
    return rest | {names["jax"]: jaxlib if jaxlib.startswith("0.1.") else jax + label}


def _read_version(parts: _Parts, key: str, value: Any) -> None:
    component = resolve_component(key).component
    if component.name == "driver":
        what = "the driver belongs to the pool, not to the stack"
        hint = 'give it as pool.driver, or as set.driver for "what if"'
        raise BadInput(what, field=key, value=value, hint=hint)
    if component.name in NODE_COMPONENTS:
        what, name = "belongs to the nodes of a pool, not to the stack", component.name
        hint = f'give it as pool.node.{name}, or as set.{name} for "what if"'
        raise BadInput(what, field=key, value=value, hint=hint)
    of_kind = parts.packages if component.kind == "package" else parts.components
    _refuse_repetition(of_kind, component.name, key)
    try:
        text, code = split_code(read_version_text(key, value))
        of_kind[component.name] = parse_version(key, text)
    except BadInput as error:
        error.field = key  # as the user spelled it
        raise
    if code:
        parts.code[component.name] = code


def _make_stack(parts: _Parts, image: str | None) -> Stack:
    stated = (value for name, value in parts.special.items() if name not in _OF_PARTS)
    if not (parts.components or parts.packages or "arch" in parts.special or any(stated)):
        hint = "name at least one component, for example cuda=12.4,arch=sm_80"
        raise BadInput("the stack is empty", hint=hint)
    return Stack(
        {name: parts.components[name] for name in sort_components(parts.components)},
        packages={name: parts.packages[name] for name in sorted(parts.packages)},
        code={name: parts.code[name] for name in sorted(parts.code)},
        image=image,
        **{_FIELDS[name]: value for name, value in parts.special.items()},
    )


_NOT_IN_IMAGES = OF_BUILDS | {"needs"}
_OF_PARTS = ("wheels", "measured", "unmeasured", "content", "alternatives")
"""Keys that describe parts of a stack, and state none."""


_RANGE = re.compile(r"([\w.-]+)\s*[<>!~]")
"""The beginning of a range, which package managers accept and a stack does not: ``torch>=2.8``."""
_SPACED = re.compile(r"[^\s=]+\s+([A-Za-z][\w.-]*)=")
"""A value that ends with the name of another part: ``2.8.0 cuda=12.8``."""


def parse_stack_text(text: str, example: str = "cuda=12.4,arch=sm_80+sm_90") -> dict[str, Any]:
    """Read ``cuda=12.4,cudnn=9.1.0,arch=sm_80+compute_90`` into the JSON form."""
    body: dict[str, Any] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = item.partition("=")
        key, value = key.strip(), value.strip().removeprefix("=")
        if range_of := _RANGE.match(item):
            what, hint = f"{item!r} is a range of versions", f"state one, like {range_of[1]}=2.8.0"
            raise BadInput(what, field=range_of[1], value=item, hint=hint)
        if not equals or not key or not value:
            hint = f"for example {example}"
            raise BadInput(f"{item!r} is not name=version", value=item, hint=hint)
        if spaced := _SPACED.match(value):
            hint = f"separate parts by commas: {','.join(item.split())}"
            raise BadInput(f"{value!r} has no comma before {spaced[1]}", field=key, hint=hint)
        _refuse_repetition(body, key, key)
        body[key] = value
    return body


def update_stack(stack: Stack, changes: Mapping[str, Any]) -> Stack:
    """Return the stack with components set to other versions, or removed where that is None."""
    if stack.assumed:  # what is changed may say another CUDA
        stated_only = {name: v for name, v in stack.components.items() if name != "cuda"}
        stack = structs.replace(stack, components=stated_only, assumed=())
    removed = {_canonical_name(name) for name, value in changes.items() if value is None}
    stated = _read_parts(
        {_canonical_name(name): value for name, value in changes.items() if value is not None}
    )
    changed = removed | stated.components.keys() | stated.packages.keys()

    def kept(there: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in there.items() if name not in changed}

    if not {_canonical_name(name) for name in changes} <= _NOT_IN_IMAGES:
        removed |= {"content"}
    if stack.compat_use == "always" or not stack.cuda_compat:
        removed |= {"cuda-compat-use"}
    special = {
        name: value
        for name, field in _FIELDS.items()
        if name not in removed
        and ((value := getattr(stack, field)) or (name == "arch" and value is not None))
    }
    if stack.alternatives:
        special["alternatives"] = {
            name: update_stack(one, changes) for name, one in stack.alternatives.items()
        }
    return _make_stack(
        _Parts(
            kept(stack.components) | stated.components,
            kept(stack.packages) | stated.packages,
            kept(stack.code) | stated.code,
            special
            | {"wheels": kept(stack.wheels), "measured": kept(stack.measured)}
            | stated.special,
        ),
        stack.image,
    )


def stack_of(versions: Mapping[str, Version]) -> Stack:
    """Make a stack of versions by canonical name, components and packages alike."""
    names = sort_components(versions)
    return Stack(
        {name: versions[name] for name in names if name in COMPONENTS},
        packages={name: versions[name] for name in names if name not in COMPONENTS},
    )


def complete_stack(stack: Stack, frameworks: Container[str] = FRAMEWORKS) -> Stack:
    """Complete a stack with the CUDA of a framework's version label, where it states none."""
    newest = None if "cuda" in stack.components else find_labelled_cuda(stack, frameworks)
    if newest is None:
        return stack
    return structs.replace(stack, components={"cuda": newest, **stack.components})


def find_labelled_cuda(stack: Stack, frameworks: Container[str]) -> Version | None:
    """Return the newest CUDA in frameworks' version labels (``torch=2.9.1+cu130``).

    A label that also names a torch (``flash-attn=2.6.0+cu122torch2.4cxx11abiFALSE``) is that of an
    extension, which runs with every CUDA of its major: beside a torch it does not say the CUDA.
    """
    labels = [
        version.cuda
        for name, version in stack.versions.items()
        if name in frameworks and version.cuda and len(version.cuda) == 2
        if not ("torch" in stack.components and "torch" in version.local)
    ]
    return parse_version("cuda", format_parts(max(labels))) if labels else None


def canonical_key(name: str) -> str:
    """Return one name for all spellings of a stack's key; other text stays as it is."""
    try:
        return _canonical_name(name)
    except BadInput:
        return name


def _canonical_name(name: str) -> str:
    clean = _normalise_key(name)
    return clean if clean in SPECIAL_KEYS else resolve_component(name).component.name


def _normalise_key(name: str) -> str:
    return name.strip().lower().replace("_", "-")


def _refuse_repetition(seen: Mapping[str, Any], name: str, key: str) -> None:
    if name in seen:
        raise BadInput(f"{name} is stated twice", field=key, hint="name each component once")


def _read_alternatives(value: Any) -> dict[str, Stack]:
    if not isinstance(value, Mapping) or not all(isinstance(v, Mapping) for v in value.values()):
        hint = 'like {"opt/venv": {"torch": "2.9.1+cu130"}}'
        raise BadInput("must be stacks by name", field="alternatives", hint=hint)
    check_count(len(value), MAX_STACKS, "stacks", "alternatives")
    found = {}
    for name, body in value.items():
        check_length(name, MAX_NAME_LENGTH, "alternatives")
        try:
            found[name] = parse_stack(body)
        except BadInput as error:
            raise error.at(f"alternatives.{name}") from None
        if found[name].alternatives:
            raise BadInput("cannot have alternatives", field=f"alternatives.{name}")
    return found


SPECIAL_KEYS: dict[str, Callable[[Any], Any]] = {
    **VALUE_READERS,
    "alternatives": _read_alternatives,
}
"""Keys that are not components, and the reader of each; a reader raises BadInput."""


def format_stack(values: Mapping[str, Any]) -> str:
    """Return versions as text, ``cuda=12.4,arch=sm_80+sm_90``; as JSON if text cannot hold them."""
    plain = {
        n: "+".join(v) if isinstance(v, list) and n in ("arch", "needs") else v
        for n, v in values.items()
    }
    if all(v is None or (isinstance(v, str) and "," not in v) for v in plain.values()):
        return ",".join(f"{name}={value or ''}" for name, value in plain.items())
    return msgspec.json.encode(values).decode()
