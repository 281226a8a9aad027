"""NVIDIA's ``NVIDIA_REQUIRE_*`` language, in the two dialects that NVIDIA ships.

An image states what it needs of a host in environment variables such as
``NVIDIA_REQUIRE_CUDA=cuda>=12.4 brand=tesla,driver>=470,driver<471``. Spaces separate
alternatives, commas join conditions. The C library (libnvidia-container, ``nvidia-container-cli``)
and the Go toolkit (nvidia-container-toolkit) read the same words differently; the modules `c` and
`go` say how.
"""

from compatgate.core.requirements.evaluate import check
from compatgate.core.requirements.model import Answer, Impl, MalformedRequirement, Properties
from compatgate.core.requirements.question import Question

__all__ = ["Answer", "Impl", "MalformedRequirement", "Properties", "Question", "check"]
