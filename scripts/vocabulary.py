"""Writes compatgate/core/vocabulary.py: the components of matrix/facts/components.yaml, as code.

The rules, and whatever reads a name, need the closed list of components before any fact is read,
and the core reads no files. ``--check`` only says whether the module is current.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compatgate.catalog.build.packages import vocabulary_values
from compatgate.catalog.library import read_document

MODULE = Path(__file__).parents[1] / "compatgate" / "core" / "vocabulary.py"

_HEAD = '''"""The components of matrix/facts/components.yaml, written by ``make vocabulary``."""

from __future__ import annotations

from typing import Any
'''
_TEXT = {
    "COMPONENTS": "Name, form of version, kind and title, in canonical order.",
    "ALIASES": "Other names that mean a component.",
    "PACKAGE_ALIASES": "Other names that mean a package or a program.",
    "NOT_ON_INDEX": "Names of components that are other packages, stubs or parts on the index.",
    "CONDA": "Names on channels of conda, where they are not the component's.",
    "LIBRARIES": "File names of libraries up to ``.so``.",
    "DLLS": "File names of libraries of Windows up to the version: ``cudart64_12.dll``.",
    "FOLDERS": "Folders of site-packages that hold a component's files.",
    "BUILT_PER_CUDA": "Components of which a version has a build for each CUDA.",
    "META": "Components whose package brings nothing but the one for a CUDA.",
    "CUDA_BY_PLUGIN": "Components whose own package has no CUDA.",
    "NEEDS_URL": "Components that no name alone identifies.",
}


def main() -> int:
    """Write the module, or with ``--check`` compare it."""
    document = read_document("components")
    text = vocabulary_source(document["components"], document["packages"])
    if "--check" in sys.argv:
        return 0 if MODULE.read_text() == text else 1
    MODULE.write_text(text)
    return 0


def vocabulary_source(
    components: Sequence[Mapping[str, Any]], packages: Sequence[Mapping[str, Any]]
) -> str:
    """Return the text of the vocabulary module."""
    return _HEAD + "".join(
        _assignment(name, value) for name, value in vocabulary_values(components, packages).items()
    )


def _assignment(name: str, value: Any) -> str:
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


if __name__ == "__main__":
    sys.exit(main())
