"""Ask package indexes for the wheels of a release: address, digest and metadata.

Sources: PEP 503 and 691 (simple API as HTML and JSON), 658 and 714 (metadata files),
700 (sizes); pip's documentation, "Configuration" (files, ``PIP_INDEX_URL``); uv's
``UV_DEFAULT_INDEX``.
"""

from __future__ import annotations

import base64
import configparser
import hashlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote, unquote, urldefrag, urljoin, urlsplit, urlunsplit

import msgspec
from msgspec import Struct
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version
from platformdirs import site_config_dir, user_config_dir

from compatgate.discovery.lockfiles.platform import Platform
from compatgate.discovery.lockfiles.wheel_builds import select_wheels
from compatgate.discovery.registry.transport import Transport
from compatgate.errors import BadInput, CompatgateError, DamagedContent, NotFound, Unavailable

DEFAULT_INDEX = "https://pypi.org/simple"
LARGEST_PAGE = 64 * 1024 * 1024
LARGEST_METADATA = 4 * 1024 * 1024
_ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.1"
_NO_HASH = ("", "true")
_ALLOWED_SCHEMES = {
    "https": ("https",),
    "http": ("https", "http"),
    "file": ("https", "http", "file"),
}
"""Allowed schemes of files by the page's scheme: no link leaves TLS or reaches local files."""


class IndexFile(Struct, frozen=True):
    """A wheel in the listing of an index, with the credentials (``user:password``) for its server.

    ``metadata`` is the SHA-256 of the file at ``url`` + ``.metadata``; ``""`` where the index
    states no digest, None where it has no such file. The time of the upload may not be stated.
    """

    name: str
    url: str
    sha256: str | None = None
    size: int | None = None
    metadata: str | None = None
    credentials: str = ""
    uploaded: str = ""
    yanked: bool = False

    @property
    def headers(self) -> dict[str, str]:
        """Return headers for a request of the wheel."""
        if not self.credentials:
            return {}
        encoded = base64.b64encode(unquote(self.credentials).encode()).decode("ascii")
        return {"Authorization": f"Basic {encoded}"}


def read_index_settings(
    environment: Mapping[str, str] | None = None, files: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Return the indexes in the configuration of pip or uv, PyPI without one.

    Of pip's configuration files, later ones win.
    """
    variables = os.environ if environment is None else environment
    parser = configparser.RawConfigParser()
    for path in _pip_files(variables) if files is None else files:
        with suppress(configparser.Error, UnicodeDecodeError, OSError):  # pip reports them itself
            parser.read(path, encoding="utf-8")
    sections = [name for name in ("global", "install", "download") if parser.has_section(name)]
    settings = {key: value for name in sections for key, value in parser.items(name)}
    first = (
        variables.get("PIP_INDEX_URL")
        or variables.get("UV_DEFAULT_INDEX")
        or variables.get("UV_INDEX_URL")
        or settings.get("index-url")
        or DEFAULT_INDEX
    )
    names = ("UV_INDEX", "UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL")
    more = [variables.get(name, "") for name in names] + [settings.get("extra-index-url", "")]
    urls = []
    for url in (first, *(url for text in more for url in text.split())):
        name, equals, rest = url.partition("=")  # uv's name=https://...
        named = equals and "/" not in name and "://" in rest
        urls.append((rest if named else url).rstrip("/"))
    return tuple(dict.fromkeys(urls))


def _pip_files(variables: Mapping[str, str]) -> list[str]:
    named = variables.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:
        return []
    home = os.path.expanduser("~")
    return [
        "/etc/pip.conf",
        os.path.join(site_config_dir("pip", appauthor=False), "pip.conf"),
        os.path.join(home, ".pip", "pip.conf"),
        os.path.join(user_config_dir("pip", appauthor=False), "pip.conf"),
        os.path.join(sys.prefix, "pip.conf"),
        *([named] if named else []),
    ]


class PackageIndex:
    """Package indexes in the order of requests.

    Files may be on ``hosts`` (None: any); the pages of ``flat`` addresses link the wheels
    themselves.
    """

    def __init__(
        self,
        urls: Sequence[str],
        transport: Transport,
        *,
        hosts: frozenset[str] | None = None,
        flat: bool = False,
    ) -> None:
        self.urls = tuple(urls)
        self._transport = transport
        self._hosts = hosts
        self._flat = flat

    def wheels(self, package: str, version: str) -> list[IndexFile]:
        """List the wheels of a release on the first index that has any.

        A version without a label also matches the only labelled one, as in pip.
        """
        try:
            wanted = Version(version)
        except InvalidVersion:
            raise BadInput("is not a version", field="version", value=version) from None
        known = False
        for url in self.urls:
            files = self.files(url, package)
            known = known or bool(files)
            by_version: dict[Version, list[IndexFile]] = {}
            for file in files:
                with suppress(InvalidWheelFilename):
                    by_version.setdefault(parse_wheel_filename(file.name)[1], []).append(file)
            if wanted in by_version:
                return by_version[wanted]
            builds = [v for v in by_version if not wanted.local and v.public == wanted.public]
            if len(builds) == 1:
                return by_version[builds[0]]
            if builds:
                what = f"{url} has several builds: {', '.join(map(str, sorted(builds)))}"
                raise BadInput(what, field=f"{package}=={version}", hint="name one release")
        what = "has no wheel of that version" if known else "has no wheel of that package"
        places = ", ".join(map(strip_credentials, self.urls))
        hint = f"asked: {places}; name another index with --index"
        raise NotFound(f"the index {what}", field=f"{package}=={version}", hint=hint)

    def files(self, url: str, package: str) -> list[IndexFile]:
        """List all wheels of a package on one index; return none for unknown packages.

        A folder without pages is an index of the wheels that lie in it.
        """
        base, credentials = split_credentials(url)
        page = base if self._flat else f"{base.rstrip('/')}/{canonicalize_name(package)}/"
        if page.startswith("file:"):
            data = _local_file(f"{page}index.json", LARGEST_PAGE)
            kind = "text/html" if data is None else "application/json"
            if data is None and (data := _local_file(f"{page}index.html", LARGEST_PAGE)) is None:
                return _local_wheels(unquote(urlsplit(base).path), package)
        else:
            headers = IndexFile("", page, credentials=credentials).headers | {"Accept": _ACCEPT}
            data, kind, page = self._get(page, headers, LARGEST_PAGE)
        if data is None:
            return []
        if kind.endswith("json"):
            try:
                document = msgspec.json.decode(data)
                files = document["files"]
            except (msgspec.DecodeError, RecursionError, KeyError, TypeError, UnicodeDecodeError):
                raise Unavailable("the URL is not a package index", field=page) from None
            listed = files if isinstance(files, list) else []
            rows = [item for item in listed if isinstance(item, dict)]
        else:
            links = _Links()
            links.feed(data.decode("utf-8", "replace"))
            rows = links.files
        files = list(_listed_files(rows, page, credentials))
        if self._hosts is not None:
            allowed = self._hosts | {urlsplit(page).netloc}
            files = [one for one in files if urlsplit(one.url).netloc in allowed]
        return [one for one in files if _is_of(one.name, package)] if self._flat else files

    def metadata(self, file: IndexFile) -> bytes | None:
        """Return the metadata file of a wheel; None where the index has none."""
        if file.metadata is None:
            return None
        if file.url.startswith("file:"):
            data = _local_file(f"{file.url}.metadata", LARGEST_METADATA)
        else:
            data, _, _ = self._get(f"{file.url}.metadata", file.headers, LARGEST_METADATA)
        if data is not None and file.metadata not in _NO_HASH:
            digest = hashlib.sha256(data).hexdigest()
            if digest != file.metadata:
                what = f"its metadata has the SHA-256 {digest}, the index states {file.metadata}"
                raise DamagedContent(what, field=file.name, hint="no record was made")
        return data

    def _get(
        self, url: str, headers: dict[str, str], largest: int
    ) -> tuple[bytes | None, str, str]:
        try:
            with self._transport.open(url, {**headers, "Accept-Encoding": "identity"}) as response:
                if response.status in (404, 410):
                    return None, "", url
                if response.status != 200:
                    what = f"the index answers with status {response.status}"
                    raise Unavailable(what)
                kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
                return response.read_all(largest), kind, response.url
        except CompatgateError as error:
            error.field = strip_credentials(url)
            error.hint = "check the index's URL, the network and the proxy"
            raise


def choose_wheel(files: Sequence[IndexFile], platform: Platform) -> list[IndexFile]:
    """Choose the wheel that a platform installs; None where no wheel fits.

    Without a wheel for the platform's Python, choose the one for the newest Python; among several
    releases of the C library, the newest.
    """
    rows = [{"name": file.name} for file in files]
    for one in (platform, Platform(platform.os, platform.cpu)):
        if names := {wheel.url for wheel in select_wheels(rows, one)}:
            fitting = (file for file in files if file.name in names)
            return sorted(fitting, key=lambda file: _age_key(file.name))[-1:]
    return []


def _age_key(name: str) -> tuple[Any, ...]:
    _, _, build, tags = parse_wheel_filename(name)
    pythons = [t.interpreter for t in tags if t.interpreter[2:].isdigit()]
    exact = [int(p[3:] or 0) for p in pythons if p.startswith("cp") and p[2:3] == "3"]
    free_threaded = any(t.abi.endswith("t") for t in tags)
    glibc = [
        tuple(map(int, p[1:3]))
        for t in tags
        if len(p := t.platform.split("_")) > 3 and p[1].isdigit()
    ]
    return not free_threaded, max(exact, default=0), max(glibc, default=(0, 0)), build, name


def _listed_files(raw: list[dict[str, Any]], page: str, credentials: str) -> Iterator[IndexFile]:
    schemes = _ALLOWED_SCHEMES.get(urlsplit(page).scheme, ())
    for item in raw:
        url, fragment = urldefrag(urljoin(page, str(item.get("url", ""))))
        url, own = split_credentials(url)
        name = str(item.get("filename") or unquote(urlsplit(url).path.rpartition("/")[2]))
        if not name.endswith(".whl") or urlsplit(url).scheme not in schemes:
            continue
        hashes = item.get("hashes")
        digest = hashes.get("sha256") if isinstance(hashes, dict) else None
        size = item.get("size")
        same = urlsplit(url)[:2] == urlsplit(page)[:2]
        metadata = item.get("core-metadata", item.get("data-dist-info-metadata"))
        if isinstance(metadata, dict):
            metadata = _digest(metadata.get("sha256")) or ""
        elif isinstance(metadata, str):
            metadata = parse_fragment_digest(metadata) or ""
        else:
            metadata = "" if metadata else None
        yield IndexFile(
            name,
            url,
            sha256=_digest(digest) or parse_fragment_digest(fragment),
            size=size if isinstance(size, int) and size >= 0 else None,
            metadata=metadata,
            credentials=own or (credentials if same else ""),
            uploaded=str(item.get("upload-time") or ""),
            yanked=item.get("yanked") not in (None, False),
        )


def parse_fragment_digest(fragment: str) -> str | None:
    """Return the SHA-256 of ``sha256=...``, None without one."""
    return _digest(fragment.removeprefix("sha256=")) if fragment.startswith("sha256=") else None


def _digest(value: Any) -> str | None:
    text = str(value or "").strip().lower()
    return text if len(text) == 64 and not set(text) - set("0123456789abcdef") else None


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.files: list[dict[str, Any]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Add a link to the list."""
        found = dict(attrs)
        if tag == "a" and found.get("href"):
            value = found.get("data-core-metadata", found.get("data-dist-info-metadata"))
            yanked = found.get("data-yanked", False) is not False
            self.files.append({"url": found["href"], "core-metadata": value, "yanked": yanked})


def _local_wheels(folder: str, package: str) -> list[IndexFile]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    wheels = (name for name in names if name.endswith(".whl") and _is_of(name, package))
    return [IndexFile(name, f"file://{quote(os.path.join(folder, name))}") for name in wheels]


def _is_of(name: str, package: str) -> bool:
    return canonicalize_name(name.partition("-")[0]) == canonicalize_name(package)


def _local_file(url: str, largest: int) -> bytes | None:
    try:
        with open(unquote(urlsplit(url).path), "rb") as file:
            return file.read(largest)
    except OSError:
        return None


def split_credentials(url: str) -> tuple[str, str]:
    """Split a URL into one without user and password, and these."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=host)), user if at else ""


def strip_credentials(url: str) -> str:
    """Return a URL without user and password."""
    return split_credentials(url)[0]
