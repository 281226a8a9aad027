"""Files that travel with the program are found in the repository and in the wheel."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatgate import resources
from compatgate.errors import CatalogError


def test_a_checkout_uses_the_repositorys_files() -> None:
    root = Path(resources.__file__).parent.parent
    assert resources.matrix_dir() == root / "matrix"
    assert resources.find_packaged("matrix") is None


def test_an_installation_uses_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "compatgate"
    (package / "_data" / "matrix").mkdir(parents=True)
    monkeypatch.setattr(resources, "_PACKAGE", str(package))
    assert resources.matrix_dir() == package / "_data" / "matrix"


def test_an_incomplete_installation_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "_PACKAGE", str(tmp_path / "compatgate"))
    with pytest.raises(CatalogError, match="the canary files are missing"):
        resources.canary_dir()
    with pytest.raises(CatalogError, match="reinstall compatgate"):
        resources.migrations_dir()
