"""Reading text and bodies in one step."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent

import pytest

from compatgate.core.facts.nvidia import Gpus
from compatgate.documents.sources import DocumentProblem, Source
from compatgate.documents.specs import Document
from compatgate.documents.validation import read_documents
from compatgate.errors import ManyProblems

TARGET = """\
apiVersion: compatgate.dev/v1
kind: Target
metadata: {name: prod-a100}
spec:
  pools:
    - {name: a100-80, gpu: A100-SXM4-80GB, driver: "535.183.01"}
---
"""


@pytest.fixture(scope="session")
def read(gpus: Gpus) -> Callable[..., list[Document]]:
    """Read a text (or several, by name) that may name the target ``prod-a100``."""

    def reading(text: str | dict[str, str], known: tuple[str, ...] = ()) -> list[Document]:
        texts = {"matrix.yaml": text} if isinstance(text, str) else text
        sources = [Source(name, dedent(content)) for name, content in texts.items()]
        return read_documents(sources, gpus, known or ("prod-a100",))

    return reading


@pytest.fixture(scope="session")
def problems(read: Callable[..., list[Document]]) -> Callable[..., list[DocumentProblem]]:
    """The mistakes that reading a text reports; none is not an option."""

    def reading(text: str | dict[str, str]) -> list[DocumentProblem]:
        with pytest.raises(ManyProblems) as caught:
            read(text)
        return list(caught.value.problems)  # type: ignore[arg-type]

    return reading


@pytest.fixture
def entry() -> Callable[..., str]:
    """An entry's text with some lines of its spec replaced or added."""

    def text(**changes: str) -> str:
        spec = {
            "targets": "[prod-a100]",
            "components": '{cuda: "12.4.*"}',
            "status": "blessed",
            **changes,
        }
        lines = [f"  {key}: {value}" for key, value in spec.items() if value]
        return "\n".join(
            [
                "apiVersion: compatgate.dev/v1",
                "kind: Entry",
                "metadata: {name: torch24}",
                "spec:",
                *lines,
                "",
            ]
        )

    return text
