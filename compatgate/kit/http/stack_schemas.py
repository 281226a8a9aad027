"""Define how REST carries a stack."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from compatgate.core.components import (
    MAX_ALTERNATIVES,
    MAX_ARCHITECTURES,
    MAX_KEYS,
    MAX_REMARKS,
    MAX_REQUIRE_LENGTH,
)

Text = Annotated[str, Meta(min_length=1)]
StackValue = str | int | bool | list[str] | dict[str, dict[str, Any] | str] | None
_STACK_VALUES = (
    "version as text; `arch` and `require` are lists; `needs` lists requirements on each GPU, "
    '`["fp8", "60GiB"]`; `disable-require` is true or false; '
    "`cuda-compat-use` is always, newer or tried; `open`, `conflicts` and `unread` are sentences; "
    "`wheels` has `file`, `sha256` and `index` by name; `measured` is the content of a package's "
    "files, as `inspect` prints it for images and folders; `unmeasured` says by release why a "
    "package has no record; `alternatives` are stacks by name that may run in place of this one: "
    "the worst counts. A version may state its GPU code: "
    "`2.8.3[sm_90]`"
)
_STACK_LIMITS = (
    f"`require` has at most {MAX_ALTERNATIVES} alternatives and {MAX_REQUIRE_LENGTH} characters in "
    f"total, `arch` {MAX_ARCHITECTURES} items, a list of sentences {MAX_REMARKS}"
)
StackBody = Annotated[
    dict[str, StackValue],
    Meta(
        min_length=1,
        max_length=MAX_KEYS,
        description=f"component or package of the index to {_STACK_VALUES}. {_STACK_LIMITS}",
        examples=[{"cuda": "12.4", "cudnn": "9.1.0", "arch": ["sm_80", "compute_90"]}],
    ),
]
