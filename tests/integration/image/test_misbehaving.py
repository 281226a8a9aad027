"""Registries that break what they promise: each a clear error, in time, and nothing is kept."""

from __future__ import annotations

import gzip
import time
from pathlib import Path

import pytest
import zstandard

from compatgate.discovery.registry.limits import Limits
from compatgate.errors import DamagedContent, RequestTooLarge, Unavailable

GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"
FILES = {"usr/lib/libcudnn.so.9.1.0": b"\x7fELF" + bytes(range(256)) * 400}


@pytest.fixture
def refused(read, tmp_path: Path):
    """Read an image, expect this error, and nothing in the cache."""

    def check(reference: str, kind: type[Exception], match: str, **more) -> Exception:
        cache = tmp_path / "cache"
        with pytest.raises(kind, match=match) as caught:
            read(reference, cache=str(cache), **more)
        assert not [p for p in cache.rglob("*") if p.is_file()]
        return caught.value

    return check


def test_a_truncated_blob_is_damaged(fake, refused, layer) -> None:
    whole = layer(FILES)
    reference = fake.image(whole)

    def cut(request) -> None:
        request.send_response(200)
        request.send_header("Content-Length", str(whole.size))
        request.end_headers()
        request.wfile.write(whole.data[: whole.size // 2])
        request.close_connection = True

    fake.answers[f"/v2/app/blobs/{whole.digest}"] = cut
    error = refused(
        reference, (DamagedContent, Unavailable), "ends after|does not answer|end early"
    )
    assert error.exit_code == 3


def test_a_blob_that_is_shorter_than_its_descriptor_is_damaged(fake, refused, layer) -> None:
    whole = layer(FILES, "none")
    reference = fake.image(whole)
    fake.serve(f"/v2/app/blobs/{whole.digest}", whole.data[:-1024])
    refused(reference, DamagedContent, f"ends after {whole.size - 1024} of {whole.size} bytes")


def test_a_blob_that_is_longer_than_its_descriptor_is_damaged(fake, refused, layer) -> None:
    whole = layer(FILES)
    reference = fake.image(whole)
    fake.serve(f"/v2/app/blobs/{whole.digest}", whole.data + b"more")
    refused(reference, DamagedContent, f"has more than the {whole.size} bytes")


def test_a_blob_with_another_digest_is_damaged(fake, refused, layer) -> None:
    whole, other = layer(FILES, "none"), layer({"etc/motd": b"hello"}, "none")
    padded = other.data + bytes(whole.size - other.size)
    reference = fake.image(whole)
    fake.serve(f"/v2/app/blobs/{whole.digest}", padded)
    refused(reference, DamagedContent, f"blob {whole.digest} has the digest sha256:")


def test_a_config_with_another_digest_is_damaged(fake, refused) -> None:
    reference = fake.image(env={"CUDA_VERSION": "12.4.1"})
    path = next(p for p in fake.answers if "/blobs/" in p)
    fake.serve(path, b"{}")
    refused(reference, DamagedContent, "ends after 2 of")


def test_a_manifest_with_another_digest_is_damaged(fake, refused) -> None:
    reference = fake.image()
    digest = next(p for p in fake.answers if "manifests/sha256" in p).rpartition("/")[2]
    fake.serve(f"/v2/app/manifests/{digest}", b'{"schemaVersion": 2}')
    refused(f"{reference[:-2]}@{digest}", DamagedContent, "should have the digest")


def test_a_redirect_loop_ends(fake, refused) -> None:
    def around(request) -> None:
        request.send_response(307)
        request.send_header("Location", request.path)
        request.send_header("Content-Length", "0")
        request.end_headers()

    fake.answers["/v2/app/manifests/1"] = around
    refused(f"{fake.host}/app:1", Unavailable, "redirects more than 5 times")
    assert len(fake.asked) < 20


def test_a_redirect_takes_no_authorisation_to_another_host(fake, read, layer) -> None:
    whole = layer(FILES)
    reference = fake.image(whole)
    serve = fake.answers.pop(f"/v2/app/blobs/{whole.digest}")
    port = fake.host.partition(":")[2]

    def elsewhere(request) -> None:
        request.send_response(307)
        request.send_header("Location", f"http://localhost:{port}/store")
        request.send_header("Content-Length", "0")
        request.end_headers()

    fake.answers[f"/v2/app/blobs/{whole.digest}"] = elsewhere
    fake.answers["/store"] = serve
    _ask_for_a_token(fake)
    assert read(reference).stack_body == {"cudnn": "9.1.0"}
    sent = {path.partition("?")[0]: authorization for _, path, authorization in fake.asked}
    assert sent[f"/v2/app/blobs/{whole.digest}"] == "Bearer t0ken"
    assert sent["/store"] == ""
    assert any(
        path.startswith("/token?service=tests&scope=repository") for _, path, _ in fake.asked
    )


def _ask_for_a_token(fake) -> None:
    """Let every API path ask for a bearer token."""
    fake.serve("/token", b'{"token": "t0ken"}')

    def guarded(answer):
        def check(request) -> None:
            if request.headers.get("Authorization") == "Bearer t0ken":
                answer(request)
                return
            request.send_response(401)
            realm = f'Bearer realm="http://{fake.host}/token",service="tests"'
            request.send_header("WWW-Authenticate", realm)
            request.send_header("Content-Length", "0")
            request.end_headers()

        return check

    for path in [p for p in fake.answers if p.startswith("/v2/")]:
        fake.answers[path] = guarded(fake.answers[path])


def _drip(request) -> None:
    """A byte now and then: no single wait is long."""
    request.send_response(200)
    request.send_header("Content-Length", "1000000")
    request.end_headers()
    for _ in range(200):
        time.sleep(0.05)
        try:
            request.wfile.write(b"\x1f")
        except OSError:
            return


def _silent(request) -> None:
    time.sleep(8)


def _slow_header(request) -> None:
    for byte in b"HTTP/1.1 200 OK\r\nX-Slow: " + b"y" * 200:
        time.sleep(0.05)
        try:
            request.wfile.write(bytes([byte]))
        except OSError:
            return


@pytest.mark.parametrize("answer", [_drip, _silent, _slow_header])
def test_the_deadline_is_kept_however_the_registry_is_slow(fake, refused, layer, answer) -> None:
    whole = layer(FILES)
    reference = fake.image(whole)
    fake.answers[f"/v2/app/blobs/{whole.digest}"] = answer
    start = time.monotonic()
    error = refused(reference, Unavailable, "longer than the allowed 0.7 seconds", deadline_s=0.7)
    assert time.monotonic() - start < 3
    assert error.exit_code == 3


def test_a_registry_that_does_not_answer_is_unavailable(refused) -> None:
    refused("127.0.0.1:1/app:1", Unavailable, "127.0.0.1:1 does not answer")


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress], ids=["gzip", "zstd"])
def test_a_layer_that_decompresses_without_end_is_refused(fake, refused, blob, compress) -> None:
    bomb = b"".join([compress(bytes(2**24))] * 64)
    limits = Limits(ratio_from=2**28)
    refused(fake.image(blob(bomb, GZIP)), RequestTooLarge, "a decompression bomb", limits=limits)
    limits = Limits(unpacked=2**28)
    refused(fake.image(blob(bomb, GZIP)), RequestTooLarge, "decompress to more than", limits=limits)


def test_a_zstd_window_that_would_fill_the_memory_is_refused(fake, refused, blob) -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=30)
    writer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    data = writer.compress(bytes(2**16)) + writer.flush()
    refused(fake.image(blob(data, GZIP)), (RequestTooLarge, DamagedContent), "window|zstd")


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (gzip.compress(b"no tar" * 200, mtime=0), "is no tar archive at byte 0"),
        (gzip.compress(bytes(512), mtime=0)[:-4], "gzip data end early"),
        (b"\x1f\x8b" + b"x" * 600, "gzip data are damaged"),
        (b"\x28\xb5\x2f\xfd" + b"x" * 600, "zstd data are damaged"),
        (b"x" * 700, "is no tar archive"),
    ],
)
def test_a_layer_that_is_no_archive_is_damaged(fake, refused, blob, data, problem) -> None:
    refused(fake.image(blob(data, GZIP)), DamagedContent, problem)


def test_an_answer_that_is_no_manifest_is_damaged(fake, refused) -> None:
    fake.serve("/v2/app/manifests/1", b"<html>sign in</html>", "text/html")
    refused(f"{fake.host}/app:1", DamagedContent, "cannot be read")


def test_a_busy_registry_is_asked_again(fake, read) -> None:
    reference = fake.image(env={"CUDA_VERSION": "12.4.1"})
    honest = fake.answers["/v2/app/manifests/1"]

    def busy(request) -> None:
        fake.answers["/v2/app/manifests/1"] = honest
        request.send_error(503)

    fake.answers["/v2/app/manifests/1"] = busy
    assert read(reference).stack_body["cuda"] == "12.4.1"
