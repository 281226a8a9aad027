"""How tests are spread over processes: tests/support/spreading.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from spreading import GROUPS, group_of, strays

TESTS = Path(__file__).parents[2]


def test_every_test_of_this_run_is_in_the_group_of_what_it_shares(
    request: pytest.FixtureRequest,
) -> None:
    assert strays(request.session.items) == []


@pytest.mark.parametrize("path", [path for paths in GROUPS.values() for path in paths])
def test_the_groups_name_what_there_is(path: str) -> None:
    assert (TESTS / path).exists()


@pytest.mark.parametrize(
    ("path", "group"),
    [
        ("integration/canary/worker/test_worker_death.py", "engines"),
        ("e2e/test_canary_story.py", "engines"),
        ("integration/canary/test_ptx.py", "compilers"),
        ("e2e/test_readme.py", "stories"),
        ("e2e/ui/test_lists.py", "browser"),
        ("unit/core/test_stack.py", "unit/core/test_stack.py"),
    ],
)
def test_a_file_goes_where_the_longest_path_says_or_goes_alone(path: str, group: str) -> None:
    assert group_of(path) == group
