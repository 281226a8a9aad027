"""Read the values of a stack's keys, as requests carry them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

from msgspec import Struct, ValidationError, convert

from compatgate.core.components import resolve_component
from compatgate.core.gpu_code import Arch, parse_arch
from compatgate.core.limits import (
    LONGEST_NAME,
    LONGEST_REQUIRE,
    LONGEST_VERSION,
    MOST_ALTERNATIVES,
    MOST_ARCHITECTURES,
    MOST_LIBRARIES,
    MOST_REMARKS,
    refuse_longer,
    refuse_more,
)
from compatgate.core.versions import Version, parse_version
from compatgate.errors import BadInput

if TYPE_CHECKING:
    from compatgate.core.facts.records import Record

CompatUse = Literal["always", "newer", "tried"]
"""When the ``cuda-compat`` package is loaded instead of the host's driver: always (the library path
leads to it); where it is newer than the host driver (NVIDIA's container runtime decides); or where
a start script finds that it works (NGC's images)."""


_LONGEST_VERSION = 200
_MOST_WHEELS = 512
_LONGEST_TEXT = 1024
_WHEEL_KEYS = ("file", "sha256", "index")
_KEYS_HINT = f"known: {', '.join(_WHEEL_KEYS)}"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CODE = re.compile(r"(?:sm|compute)_\d{2,3}[af]?")
_RELEASE = re.compile(r"\d{1,4}\.\d{1,4}(?:\.\d{1,4}){0,2}")
_RECORD_HINT = "as `compatgate inspect --format json` prints it"


class Wheel(Struct, frozen=True, omit_defaults=True):
    """The file that a part of the stack is installed from.

    Attributes:
        file: its name, whose tags say Python and platform; empty where it is not known.
        sha256: digest of the file, in lower-case hexadecimal.
        index: URL of the package index, or conda channel, that it comes from.
    """

    file: str = ""
    sha256: str = ""
    index: str = ""

    def to_json(self) -> dict[str, str]:
        """Return its known properties."""
        return {key: value for key in _WHEEL_KEYS if (value := getattr(self, key))}


def split_code(text: str) -> tuple[str, tuple[Arch, ...]]:
    """Split ``2.8.3[sm_90+compute_90]`` into the version and the GPU code stated for it.

    Raises:
        BadInput: the brackets are not closed, or hold no architecture.
    """
    version, bracket, rest = text.strip().partition("[")
    if not bracket:
        return text, ()
    code = _arch(rest.removesuffix("]")) if rest.endswith("]") else ()
    if not code:
        hint = "write the code in brackets behind the version: 2.8.3[sm_90+compute_90]"
        raise BadInput(f"{text[:_LONGEST_VERSION]!r} states no GPU code", value=text, hint=hint)
    return version, code


def version_text(key: str, value: Any) -> str:
    """Return a version as text.

    Raises:
        BadInput: it is not text or a whole number.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        hint = "versions are text: 12.10 and 12.1 are not the same number"
        raise BadInput("a version must be text", field=key, value=value, hint=hint)
    if isinstance(value, str):
        refuse_longer(value, LONGEST_VERSION, key)
    return str(value)


def _arch(value: Any) -> tuple[Arch, ...]:
    names: Iterable[Any] = value
    if isinstance(value, str):
        # "8.0+PTX" is one name of its own kind; otherwise the plus sign separates.
        names = value.replace(";", " ").replace("+PTX", "*ptx").replace("+ptx", "*ptx")
        names = [n.replace("*", "+") for n in names.replace("+", " ").split()]
        refuse_more(len(names), MOST_ARCHITECTURES, "architectures", "arch")
    elif not isinstance(value, (list, tuple)):
        raise BadInput("must be a list of architectures", field="arch", value=value)
    else:
        refuse_more(len(value), MOST_ARCHITECTURES, "architectures", "arch")
    found: dict[Arch, None] = {}
    for name in names:
        if not isinstance(name, str):
            raise BadInput("must be text", field="arch", value=name, hint="like sm_80")
        refuse_longer(name, LONGEST_NAME, "arch")
        found.update(dict.fromkeys(parse_arch(name)))
    return tuple(found)


def _cuda_compat(value: Any) -> Version:
    try:
        return parse_version("cuda", version_text("cuda-compat", value))
    except BadInput as error:
        error.field = "cuda-compat"
        raise


def _compat_use(value: Any) -> CompatUse:
    known = get_args(CompatUse)
    if value not in known:
        hint = f"one of {', '.join(known)}"
        raise BadInput("is not known", field="cuda-compat-use", value=value, hint=hint)
    return value  # type: ignore[no-any-return]


def _require(value: Any) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)) or not all(isinstance(i, str) for i in items):
        raise BadInput("must be a list of expressions", field="require", value=value)
    alternatives = sum(max(1, len(item.split())) for item in items)
    refuse_more(alternatives, MOST_ALTERNATIVES, "alternatives", "require")
    refuse_more(sum(map(len, items)), LONGEST_REQUIRE, "characters", "require")
    return tuple(items)


def _remarks(value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(i, str) for i in value):
        raise BadInput("must be a list of sentences", value=value)
    refuse_more(len(value), MOST_REMARKS, "sentences")
    return tuple(dict.fromkeys(value))


def _wheels(value: Any) -> dict[str, Wheel]:
    if not isinstance(value, Mapping) or len(value) > _MOST_WHEELS:
        problem = f"must be an object with at most {_MOST_WHEELS} names"
        raise BadInput(
            problem, field="wheels", hint='like {"torch": {"file": "torch-2.9.1-...whl"}}'
        )
    return {resolve_component(name).component.name: _wheel(name, of) for name, of in value.items()}


def _wheel(name: str, value: Any) -> Wheel:
    field = f"wheels.{name}"
    if not isinstance(value, Mapping):
        raise BadInput("must be an object", field=field, value=value, hint=_KEYS_HINT)
    for key, text in value.items():
        if key not in _WHEEL_KEYS:
            raise BadInput("unknown key", field=f"{field}.{key}", value=text, hint=_KEYS_HINT)
        if not isinstance(text, str) or len(text) > _LONGEST_TEXT:
            problem = f"must be text of at most {_LONGEST_TEXT} characters"
            raise BadInput(problem, field=f"{field}.{key}", value=text)
    digest = value.get("sha256", "").lower()
    if digest and not _SHA256.fullmatch(digest):
        hint = "64 hexadecimal digits"
        raise BadInput("is not a SHA-256", field=f"{field}.sha256", value=digest, hint=hint)
    return Wheel(value.get("file", ""), digest, value.get("index", ""))


def _measured(value: Any) -> dict[str, Record]:
    """Read the records of parts' files, by name."""
    if not isinstance(value, Mapping) or len(value) > _MOST_WHEELS:
        problem = f"must be an object with at most {_MOST_WHEELS} names"
        hint = 'like {"flash-attn": {"libraries": [{"path": "a.so", "sass": {"sm_90": 1}}]}}'
        raise BadInput(problem, field="measured", hint=hint)
    return {
        resolve_component(name).component.name: _record(name, record)
        for name, record in value.items()
    }


def _record(name: str, value: Any) -> Record:
    from compatgate.core.facts.records import Record  # most stacks have none

    field = f"measured.{name}"
    if not isinstance(value, Mapping):
        raise BadInput("must be an object", field=field, value=value)
    try:
        record = convert({"wheel": "", **value, "package": name, "version": ""}, Record)
    except ValidationError as error:
        what, _, where = str(error).partition(" - at ")
        at = where.strip("`").removeprefix("$.")
        field = f"{field}.{at}" if at else field
        raise BadInput(f"is not a record: {what}", field=field, hint=_RECORD_HINT) from None
    refuse_more(len(record.libraries), MOST_LIBRARIES, "libraries", f"{field}.libraries")
    for library in record.libraries:
        for code in (*library.sass, *library.ptx):
            _code_name(code, f"{field}.libraries")
        for names, units in library.code_of_units:
            if units < 0 or not names:
                raise BadInput("counts units without code", field=f"{field}.libraries", value=units)
            for code in names:
                _code_name(code, f"{field}.libraries")
        _dotted(library.ptx_cuda, f"{field}.libraries.ptx_cuda")
    _dotted(record.built_for_torch, f"{field}.built_for_torch")
    refuse_longer(record.torch_beside or "", LONGEST_VERSION, f"{field}.torch_beside")
    return record


def _code_name(name: str, field: str) -> None:
    """Check that a name is one architecture.

    Raises:
        BadInput: it is not.
    """
    if not _CODE.fullmatch(name):
        hint = "like sm_90 or compute_90"
        raise BadInput("is not an architecture", field=field, value=name[:40], hint=hint)


def _dotted(text: str | None, field: str) -> None:
    if text is not None and not _RELEASE.fullmatch(text):
        raise BadInput("is not a release", field=field, value=text[:40], hint="like 12.8")


def _unmeasured(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or len(value) > _MOST_WHEELS:
        problem = f"must be an object with at most {_MOST_WHEELS} names"
        hint = 'like {"xformers==0.0.35": "the index has no wheel of that version"}'
        raise BadInput(problem, field="unmeasured", hint=hint)
    for release, why in value.items():
        if not isinstance(why, str) or max(len(why), len(str(release))) > _LONGEST_TEXT:
            problem = f"must be text of at most {_LONGEST_TEXT} characters"
            raise BadInput(problem, field="unmeasured", value=why)
    return {str(release): why for release, why in value.items()}


def _flag(value: Any) -> bool:
    if isinstance(value, str) and value.lower() in ("1", "t", "true", "0", "f", "false"):
        return value.lower() in ("1", "t", "true")
    if not isinstance(value, bool):
        raise BadInput("must be true or false", field="disable-require", value=value)
    return value


SPECIAL: dict[str, Callable[[Any], Any]] = {
    "arch": _arch,
    "cuda-compat": _cuda_compat,
    "cuda-compat-use": _compat_use,
    "require": _require,
    "disable-require": _flag,
    "open": _remarks,
    "conflicts": _remarks,
    "unread": _remarks,
    "wheels": _wheels,
    "measured": _measured,
    "unmeasured": _unmeasured,
}
"""Keys that are not components, and the reader of each; a reader raises BadInput."""
