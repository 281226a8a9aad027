"""What these tests share with others: the real compiler, and wheels of the package index."""

from cuda_toolkit import pip, toolkit, wheel

__all__ = ["pip", "toolkit", "wheel"]
