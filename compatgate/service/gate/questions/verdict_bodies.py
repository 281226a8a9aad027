"""Pack the JSON of verdicts for the database.

A packed verdict is a Zstandard frame. New frames name a dictionary, a file of this folder, which
scripts/train_verdict_dictionary.py made; older frames have none. A dictionary that a release packed
with stays, so every row can be read for ever. Archives hold the plain JSON and need none.
"""

from __future__ import annotations

import os
import threading
from functools import cache
from typing import TYPE_CHECKING

from compatgate.core.performance import sha256
from compatgate.errors import DamagedContent, Unavailable, quote_error

if TYPE_CHECKING:
    from zstandard import ZstdCompressionDict, ZstdDecompressor

DICTIONARIES = {1: "ef38cfefba8148bb2afa897aad2e07afb5035afb55089c2385387ea7f5b79680"}
"""SHA-256 of each dictionary, by number; new verdicts are packed with the last one."""
FIRST_NUMBER = 0x43470000
"""Added to a dictionary's number; Zstandard leaves such ids to programs."""
LEVEL = 3
_NEWER = "a newer compatgate packed it: upgrade compatgate on this machine"
_MAX_BYTES = 256 * 1024 * 1024
"""Most bytes that a packed body may have: a damaged one must not fill the memory."""


def pack_body(body: str) -> bytes:
    """Return the JSON of a verdict, compressed."""
    return _tools().compressor.compress(body.encode())


def read_body(body: str, packed: bytes | None) -> str:
    """Return the JSON of a verdict as it was given.

    ``body``: column ``body``, which older programs filled.
    """
    if packed is None:
        return body
    from zstandard import ZstdError, get_frame_parameters

    try:
        number = get_frame_parameters(packed).dict_id
        found = _tools().decompressor(number).decompress(packed, max_output_size=_MAX_BYTES)
        return found.decode()
    except (ZstdError, UnicodeDecodeError) as error:
        raise DamagedContent(
            f"a stored verdict is damaged: {quote_error(error)}", field="packed"
        ) from None


def dictionary_path(number: int) -> str:
    """Return the path of a dictionary's file."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), f"verdicts_{number}.zdict")


@cache
def load_dictionary(number: int) -> ZstdCompressionDict:
    """Return a dictionary of `DICTIONARIES`."""
    from zstandard import ZstdCompressionDict

    if number not in DICTIONARIES:
        what = f"a stored verdict needs dictionary {number}, known is {max(DICTIONARIES)}"
        raise Unavailable(what, field="dictionary", value=number, hint=_NEWER)
    path = dictionary_path(number)
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        content = b""
        problem = f"cannot be read: {quote_error(error)}"
    else:
        problem = "was changed: its digest does not match"
    if sha256(content) != DICTIONARIES[number]:
        hint = "reinstall compatgate"
        raise Unavailable(f"{path} {problem}", field="dictionary", value=number, hint=hint)
    made = ZstdCompressionDict(content)
    made.precompute_compress(level=LEVEL)
    return made


class _ThreadTools(threading.local):
    """A compressor and decompressors for each thread: none may be shared."""

    def __init__(self) -> None:
        from zstandard import ZstdCompressor  # not for every command

        self.compressor = ZstdCompressor(level=LEVEL, dict_data=load_dictionary(max(DICTIONARIES)))
        self._decompressors: dict[int, ZstdDecompressor] = {}

    def decompressor(self, dictionary: int) -> ZstdDecompressor:
        """Return the decompressor for frames with a dictionary id; 0: they have none."""
        from zstandard import ZstdDecompressor

        if dictionary not in self._decompressors:
            known = load_dictionary(dictionary - FIRST_NUMBER) if dictionary else None
            self._decompressors[dictionary] = ZstdDecompressor(dict_data=known)
        return self._decompressors[dictionary]


@cache
def _tools() -> _ThreadTools:
    return _ThreadTools()
