"""A field of a form takes a bounded list; the YAML takes longer ones."""

from __future__ import annotations

from typing import Any

import pytest

from compatgate.errors import BadInput
from compatgate.web.pages.form_fields import MAX_VALUES, write_fields


@pytest.mark.parametrize(
    ("field", "value"),
    [("targets", "prod-{n}"), ("gpus", "L{n},"), ("components", "p{n} 1.0\n")],
)
def test_a_field_refuses_a_list_without_end(field: str, value: str) -> None:
    def texts(count: int) -> str:
        return " ".join(value.format(n=n) for n in range(count))

    document: dict[str, Any] = {"spec": {}}
    assert write_fields("Entry", document, {}, {field: texts(MAX_VALUES)})
    assert len(document["spec"][field]) == MAX_VALUES
    with pytest.raises(BadInput, match="at most 2,000") as refused:
        write_fields("Entry", document, {}, {field: texts(MAX_VALUES + 1)})
    assert refused.value.field == field
    assert len(document["spec"][field]) == MAX_VALUES
