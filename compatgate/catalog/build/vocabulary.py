"""The closed list of components, from ``components.yaml`` into the module that the core reads.

The core reads no files, and names are resolved before any fact is: so the list is a module, which
``make vocabulary`` writes. Facts that say otherwise are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from compatgate.catalog.build.read import Record
from compatgate.core import vocabulary
from compatgate.errors import BadInput

_HEAD = '''"""The components of matrix/facts/components.yaml, written by ``make vocabulary``."""

from __future__ import annotations

from typing import Any
'''
_TEXT = {
    "COMPONENTS": "Name, form of version, kind and title, in canonical order.",
    "ALIASES": "Other names that mean a component.",
    "NOT_ON_INDEX": "Names of components that are other packages, stubs or parts on the index.",
    "CONDA": "Names on channels of conda, where they are not the component's.",
    "LIBRARIES": "File names of libraries up to ``.so``.",
    "DLLS": "File names of libraries of Windows up to the version: ``cudart64_12.dll``.",
    "MODULES": "Top-level modules that Python imports.",
    "FOLDERS": "Folders of site-packages that hold a component's files.",
    "BUILT_PER_CUDA": "Components of which a version has a build for each CUDA.",
    "META": "Components whose package brings nothing but the one for a CUDA.",
    "CUDA_BY_PLUGIN": "Components whose own package has no CUDA.",
    "NEEDS_URL": "Components that no name alone identifies.",
}


def values_of(components: Sequence[Record]) -> dict[str, Any]:
    """Return what the module holds, by the name that it has there."""
    return {
        "COMPONENTS": tuple((c["name"], c["versions"], c["kind"], c["title"]) for c in components),
        "ALIASES": _named(components, "aliases"),
        "NOT_ON_INDEX": tuple(n for c in components for n in c.get("not_on_index", ())),
        "CONDA": _named(components, "conda"),
        "LIBRARIES": _named(components, "libraries"),
        "DLLS": _named(components, "dlls"),
        "MODULES": _named(components, "modules"),
        "FOLDERS": {
            folder: c["name"]
            for c in components
            for folder in c.get("folders", c.get("modules", ()))
        },
        "BUILT_PER_CUDA": _marked(components, "built_per_cuda"),
        "META": _marked(components, "meta"),
        "CUDA_BY_PLUGIN": _marked(components, "cuda_by_plugin"),
        "NEEDS_URL": _marked(components, "needs_url"),
    }


def source_of(components: Sequence[Record]) -> str:
    """Return the module's text."""
    return _HEAD + "".join(_assigned(name, value) for name, value in values_of(components).items())


def check_vocabulary(components: Sequence[Record]) -> None:
    """Refuse components that are not those of this program.

    Raises:
        BadInput: they differ; says in what.
    """
    for name, value in values_of(components).items():
        if getattr(vocabulary, name) != value:
            raise BadInput(
                "the components are not those that this program was built with",
                field="components",
                value=name,
                hint="the list is closed: an overlay adds to packages; a developer runs"
                " make vocabulary",
            )


def _named(components: Iterable[Record], field: str) -> dict[str, str]:
    return {name: c["name"] for c in components for name in c.get(field, ())}


def _marked(components: Iterable[Record], field: str) -> tuple[str, ...]:
    return tuple(c["name"] for c in components if c.get(field))


def _assigned(name: str, value: Any) -> str:
    if isinstance(value, dict):
        kind, opened, closed = "dict[str, str]", "{", "}"
        lines = [f'"{key}": "{of}",' for key, of in value.items()]
    else:
        kind = f"tuple[{'tuple[Any, ...]' if name == 'COMPONENTS' else 'str'}, ...]"
        opened, closed = "(", ")"
        lines = [f"{_literal(item)}," for item in value]
    if len(lines) == 1:
        return f'\n{name}: {kind} = {opened}{lines[0]}{closed}\n"""{_TEXT[name]}"""\n'
    body = "".join(f"    {line}\n" for line in lines)
    return f'\n{name}: {kind} = {opened}\n{body}{closed}\n"""{_TEXT[name]}"""\n'


def _literal(item: Any) -> str:
    if isinstance(item, tuple):
        return f"({', '.join(map(_literal, item))})"
    return f'"{item}"'
