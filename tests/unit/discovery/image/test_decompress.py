"""What a layer's bytes are: its content decides, unless its media type says another thing."""

from __future__ import annotations

import gzip
import io

import pytest
import zstandard

from compatgate.discovery.image.layer import Budget, decompress
from compatgate.discovery.registry.limits import Limits
from compatgate.errors import DamagedContent


def read(data: bytes, *, plain: bool = False) -> bytes:
    return b"".join(decompress(io.BytesIO(data), Budget(Limits()), plain=plain))


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_compressed_bytes_of_an_uncompressed_type_are_refused(pack) -> None:
    assert read(pack(b"content")) == b"content"
    assert read(b"content", plain=True) == b"content"
    with pytest.raises(DamagedContent, match="its media type says that it is not"):
        read(pack(b"content"), plain=True)


def test_gzip_that_continues_after_padding_is_refused() -> None:
    assert read(gzip.compress(b"a") + gzip.compress(b"b")) == b"ab"
    assert read(gzip.compress(b"a") + bytes(100)) == b"a"
    with pytest.raises(DamagedContent, match="continue after padding"):
        read(gzip.compress(b"a") + bytes(100) + gzip.compress(b"b"))
