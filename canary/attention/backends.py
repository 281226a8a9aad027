"""Compute attention with a chosen PyTorch backend."""

import warnings

import torch

NAMES = {
    "math": "MATH",
    "flash": "FLASH_ATTENTION",
    "efficient": "EFFICIENT_ATTENTION",
    "cudnn": "CUDNN_ATTENTION",
}
"""Name of a check to a member of ``SDPBackend``."""
FUSED = ("flash", "efficient", "cudnn")
_REFUSALS = ("no available kernel", "no viable backend", "invalid backend", "not implemented for")


class NotOffered(Exception):
    """Error: the framework has no such backend for this GPU and case."""


def using(name, call):
    """Call with one backend and no other.

    Args:
        name: name in `NAMES`.
        call: function without arguments.

    Raises:
        NotOffered: the framework refuses.
    """
    with warnings.catch_warnings():
        # PyTorch warns of every reason for which it rejected another backend.
        warnings.simplefilter("ignore")
        try:
            with _only(name):
                return call()
        except RuntimeError as error:
            if not any(words in str(error).lower() for words in _REFUSALS):
                raise
            raise NotOffered(str(error).splitlines()[0]) from None


def _only(name):
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel
    except ImportError:
        return _only_before_2_3(name)
    if not hasattr(SDPBackend, NAMES[name]):
        raise NotOffered(f"PyTorch {torch.__version__} does not have it")
    return sdpa_kernel(getattr(SDPBackend, NAMES[name]))


def _only_before_2_3(name):
    if name == "cudnn":
        raise NotOffered(f"PyTorch {torch.__version__} does not have it")
    return torch.backends.cuda.sdp_kernel(
        enable_math=name == "math",
        enable_flash=name == "flash",
        enable_mem_efficient=name == "efficient",
    )
