"""What a step of GitHub Actions leaves behind: its job summary, its outputs, its annotations.

Source: GitHub Docs, "Workflow commands for GitHub Actions", sections on environment files and
multiline strings.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence

from compatgate.cli.formats import Answer, render_all, words
from compatgate.cli.formats.github import command
from compatgate.errors import BadInput, CompatgateError

_LARGEST_SUMMARY = 1024 * 1024


def publish(answers: Sequence[Answer]) -> None:
    """Write the job summary and the outputs ``verdict``, ``allowed``, ``id`` and ``markdown``.

    Does nothing where the environment names no files for them.

    Raises:
        BadInput: such a file cannot be written.
    """
    markdown = render_all("markdown", answers)
    _append("GITHUB_STEP_SUMMARY", f"{markdown}\n\n", largest=_LARGEST_SUMMARY)
    _append("GITHUB_OUTPUT", _outputs({**words.outcome(answers), "markdown": markdown}))


def publish_error(error: CompatgateError, *, let_pass: bool) -> None:
    """Annotate that there was no decision, or that the question was wrong."""
    print(command("warning" if let_pass else "error", error.detail, title="compatgate"))
    said = {"verdict": "unknown", "allowed": "false", "id": "", "markdown": ""}
    _append("GITHUB_OUTPUT", _outputs(said))


def _outputs(values: Mapping[str, str]) -> str:
    """Each between delimiters that no value can know."""
    lines = []
    for name, value in values.items():
        delimiter = f"compatgate_{secrets.token_hex(16)}"
        lines.append(f"{name}<<{delimiter}\n{value}\n{delimiter}\n")
    return "".join(lines)


def _append(variable: str, text: str, *, largest: int | None = None) -> None:
    path = os.environ.get(variable)
    if not path:
        return
    data = text.encode("utf-8", "replace")
    try:
        with open(path, "ab") as file:
            if largest is None or file.tell() + len(data) <= largest:
                file.write(data)
    except OSError as error:
        raise BadInput(f"cannot write '{path}': {error.strerror}", field=variable) from None
