"""Requirements of packages: a major alone may be any of its releases."""

import pytest

from compatgate.core.package_requirements import PlatformRequirement
from compatgate.core.versions import parse_version


@pytest.mark.parametrize(
    ("spec", "have", "holds"),
    [
        (">=8.1,<8.9", "8", True),
        (">8.1,<8.2", "8", True),
        ("~=8.5.0", "8", True),
        ("==8.9.7.29", "8", True),
        (">=8.9.2.26,<9", "8", True),
        ("<8", "8", False),
        (">=9", "8", False),
        ("==9.*", "8", False),
        (">=8.1,<8.9", "8.0.5", False),
        (">=8.1,<8.9", "8.9.2", False),
    ],
)
def test_a_major_of_cudnn_meets_a_range_that_has_a_release_of_it(spec, have, holds):
    found = PlatformRequirement("nvidia-cudnn", "cudnn", spec).compare(parse_version("cudnn", have))
    assert found.holds is holds
