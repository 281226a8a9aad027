"""Test how routes are declared."""

import pytest

from compatgate.kit.http.route import Returns, Routes

STORED = Returns(dict, "The thing")


def test_a_change_names_the_scope_it_takes() -> None:
    with pytest.raises(TypeError, match="scope"):
        Routes("things").put("/things", STORED)(print)  # type: ignore[arg-type]


def test_routes_share_the_scope_of_changes() -> None:
    routes = Routes("things", scope="operate")
    assert routes.put("/things", STORED)(print).scope == "operate"  # type: ignore[arg-type]
    assert routes.get("/things", STORED)(print).scope == "read"  # type: ignore[arg-type]
