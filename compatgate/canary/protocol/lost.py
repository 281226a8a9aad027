"""What an executor puts among the lines where some may be missing."""

from __future__ import annotations

LOST = b'{"type": "lost", "message": "the log outgrew its files, lines may be missing"}\n'
