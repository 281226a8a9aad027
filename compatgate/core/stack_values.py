"""Read the values of a stack's keys, as requests carry them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

from msgspec import Struct, ValidationError, convert

from compatgate.core.binding import is_digest
from compatgate.core.components import (
    MAX_ALTERNATIVES,
    MAX_ARCHITECTURES,
    MAX_LIBRARIES,
    MAX_NAME_LENGTH,
    MAX_REMARKS,
    MAX_REQUIRE_LENGTH,
    MAX_VERSION_LENGTH,
    check_count,
    check_length,
    resolve_component,
)
from compatgate.core.gpu_code import Arch, parse_arch
from compatgate.core.needs import parse_needs
from compatgate.core.versions import Version, parse_version
from compatgate.errors import BadInput, locate_error

if TYPE_CHECKING:
    from compatgate.core.facts.records import Record

CompatUse = Literal["always", "newer", "tried"]
"""When the ``cuda-compat`` package is loaded instead of the host's driver: always (the library path
leads to it); where it is newer than the host driver (NVIDIA's container runtime decides); or where
a start script finds that it works (NGC's images)."""


_MAX_QUOTED = 200
_MAX_WHEELS = 512
_MAX_TEXT_LENGTH = 1024
_WHEEL_KEYS = ("file", "sha256", "index")
_KEYS_HINT = f"known: {', '.join(_WHEEL_KEYS)}"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CODE = re.compile(r"(?:sm|compute)_\d{2,3}[af]?")
_RELEASE = re.compile(r"\d{1,4}\.\d{1,4}(?:\.\d{1,4}){0,2}")
_RECORD_HINT = "as `compatgate inspect --format json` prints it"


class Wheel(Struct, frozen=True, omit_defaults=True):
    """The file that a part of the stack is installed from."""

    file: str = ""  # its name, whose tags say Python and platform; empty where it is not known
    sha256: str = ""  # digest of the file, in lower-case hexadecimal
    index: str = ""  # URL of the package index, or conda channel, that it comes from

    def to_json(self) -> dict[str, str]:
        """Return its known properties."""
        return {key: value for key in _WHEEL_KEYS if (value := getattr(self, key))}


def split_code(text: str) -> tuple[str, tuple[Arch, ...]]:
    """Split ``2.8.3[sm_90+compute_90]`` into the version and the GPU code stated for it."""
    version, bracket, rest = text.strip().partition("[")
    if not bracket:
        return text, ()
    code = _read_arch(rest.removesuffix("]")) if rest.endswith("]") else ()
    if not code:
        hint = "write the code in brackets behind the version: 2.8.3[sm_90+compute_90]"
        raise BadInput(f"{text[:_MAX_QUOTED]!r} states no GPU code", value=text, hint=hint)
    return version, code


def read_version_text(key: str, value: Any) -> str:
    """Return a version as text."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        hint = "versions are text: 12.10 and 12.1 are not the same number"
        raise BadInput("a version must be text", field=key, value=value, hint=hint)
    if isinstance(value, str):
        check_length(value, MAX_VERSION_LENGTH, key)
    return str(value)


def _read_arch(value: Any) -> tuple[Arch, ...]:
    names = value
    if isinstance(value, str):
        # "8.0+PTX" is one name of its own kind; otherwise the plus sign separates.
        text = value.replace(";", " ").replace("+PTX", "*ptx").replace("+ptx", "*ptx")
        names = [n.replace("*", "+") for n in text.replace("+", " ").split()]
    elif not isinstance(value, (list, tuple)):
        raise BadInput("must be a list of architectures", field="arch", value=value)
    check_count(len(names), MAX_ARCHITECTURES, "architectures", "arch")
    found: dict[Arch, None] = {}
    for name in names:
        if not isinstance(name, str):
            raise BadInput("must be text", field="arch", value=name, hint="like sm_80")
        check_length(name, MAX_NAME_LENGTH, "arch")
        found.update(dict.fromkeys(parse_arch(name)))
    return tuple(found)


def _read_cuda_compat(value: Any) -> Version:
    try:
        return parse_version("cuda", read_version_text("cuda-compat", value))
    except BadInput as error:
        error.field = "cuda-compat"
        raise


def _read_compat_use(value: Any) -> CompatUse:
    known = get_args(CompatUse)
    if value not in known:
        hint = f"one of {', '.join(known)}"
        raise BadInput("is not known", field="cuda-compat-use", value=value, hint=hint)
    return value  # type: ignore[no-any-return]


def _read_require(value: Any) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)) or not all(isinstance(i, str) for i in items):
        raise BadInput("must be a list of expressions", field="require", value=value)
    alternatives = sum(max(1, len(item.split())) for item in items)
    check_count(alternatives, MAX_ALTERNATIVES, "alternatives", "require")
    check_count(sum(map(len, items)), MAX_REQUIRE_LENGTH, "characters", "require")
    return tuple(items)


def _read_remarks(value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(i, str) for i in value):
        raise BadInput("must be a list of texts", value=value)
    check_count(len(value), MAX_REMARKS, "sentences")
    return tuple(dict.fromkeys(value))


def _require_names(value: Any, field: str, example: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping) or len(value) > _MAX_WHEELS:
        problem = f"must be an object with at most {_MAX_WHEELS} names"
        raise BadInput(problem, field=field, hint=f"like {example}")
    return value


def _read_wheels(value: Any) -> dict[str, Wheel]:
    named = _require_names(value, "wheels", '{"torch": {"file": "torch-2.9.1-...whl"}}')
    return {resolve_component(n).component.name: _read_wheel(n, of) for n, of in named.items()}


def _read_wheel(name: str, value: Any) -> Wheel:
    field = f"wheels.{name}"
    if not isinstance(value, Mapping):
        raise BadInput("must be an object", field=field, value=value, hint=_KEYS_HINT)
    for key, text in value.items():
        if key not in _WHEEL_KEYS:
            raise BadInput("unknown key", field=f"{field}.{key}", value=text, hint=_KEYS_HINT)
        if not isinstance(text, str) or len(text) > _MAX_TEXT_LENGTH:
            problem = f"must be text of at most {_MAX_TEXT_LENGTH} characters"
            raise BadInput(problem, field=f"{field}.{key}", value=text)
    digest = value.get("sha256", "").lower()
    if digest and not _SHA256.fullmatch(digest):
        hint = "64 hexadecimal digits"
        raise BadInput("is not a SHA-256", field=f"{field}.sha256", value=digest, hint=hint)
    return Wheel(value.get("file", ""), digest, value.get("index", ""))


def _read_measured(value: Any) -> dict[str, Record]:
    example = '{"flash-attn": {"libraries": [{"path": "a.so", "sass": {"sm_90": 1}}]}}'
    named = _require_names(value, "measured", example)
    return {resolve_component(n).component.name: _read_record(n, one) for n, one in named.items()}


def _read_record(name: str, value: Any) -> Record:
    from compatgate.core.facts.records import Record  # most stacks have none

    field = f"measured.{name}"
    if not isinstance(value, Mapping):
        raise BadInput("must be an object", field=field, value=value)
    try:
        record = convert({"wheel": "", **value, "package": name, "version": ""}, Record)
    except ValidationError as error:
        at, what = locate_error(error)
        field = f"{field}.{at}" if at else field
        raise BadInput(f"is not a record: {what}", field=field, hint=_RECORD_HINT) from None
    check_count(len(record.libraries), MAX_LIBRARIES, "libraries", f"{field}.libraries")
    for library in record.libraries:
        codes = [*library.sass, *library.ptx]
        for names, units in library.code_of_units:
            if units < 0 or not names:
                raise BadInput("has entries without code", field=f"{field}.libraries", value=units)
            codes += names
        for code in codes:
            if not _CODE.fullmatch(code):
                what, at = "is not an architecture", f"{field}.libraries"
                raise BadInput(what, field=at, value=code[:40], hint="like sm_90 or compute_90")
        _check_release(library.ptx_cuda, f"{field}.libraries.ptx_cuda")
    _check_release(record.built_for_torch, f"{field}.built_for_torch")
    check_length(record.torch_beside or "", MAX_VERSION_LENGTH, f"{field}.torch_beside")
    return record


def _check_release(text: str | None, field: str) -> None:
    if text is not None and not _RELEASE.fullmatch(text):
        raise BadInput("is not a release", field=field, value=text[:40], hint="like 12.8")


def _read_unmeasured(value: Any) -> dict[str, str]:
    example = '{"xformers==0.0.35": "the index has no wheel of that version"}'
    named = _require_names(value, "unmeasured", example)
    for release, why in named.items():
        if not isinstance(why, str) or max(len(why), len(str(release))) > _MAX_TEXT_LENGTH:
            problem = f"must be text of at most {_MAX_TEXT_LENGTH} characters"
            raise BadInput(problem, field="unmeasured", value=why)
    return {str(release): why for release, why in named.items()}


def _read_flag(value: Any) -> bool:
    if isinstance(value, str) and value.lower() in ("1", "t", "true", "0", "f", "false"):
        return value.lower() in ("1", "t", "true")
    if not isinstance(value, bool):
        raise BadInput("must be true or false", field="disable-require", value=value)
    return value


def _read_content(value: Any) -> str:
    if not isinstance(value, str) or not is_digest(value):
        hint = "as `compatgate inspect IMAGE --format json` prints it; or leave it out"
        raise BadInput("must be sha256: and 64 hex digits", field="content", value=value, hint=hint)
    return value


VALUE_READERS: dict[str, Callable[[Any], Any]] = {
    "arch": _read_arch,
    "needs": parse_needs,
    "cuda-compat": _read_cuda_compat,
    "cuda-compat-use": _read_compat_use,
    "require": _read_require,
    "disable-require": _read_flag,
    "open": _read_remarks,
    "conflicts": _read_remarks,
    "unread": _read_remarks,
    "wheels": _read_wheels,
    "measured": _read_measured,
    "unmeasured": _read_unmeasured,
    "content": _read_content,
}
"""Keys that hold one value, and the reader of each; a reader raises BadInput."""
