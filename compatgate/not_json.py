"""What decoding JSON that others wrote may raise; apart from `compatgate.errors` to start fast."""

from __future__ import annotations

import msgspec

NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What `msgspec.json.decode` raises for what is no JSON, no UTF-8, or nested too deeply."""
