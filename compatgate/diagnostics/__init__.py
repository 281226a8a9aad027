"""Report what a process uses, for ``compatgate probe --pid``: driver, GPUs and CUDA libraries.

`compatgate.diagnostics.loaded` is a file of its own that needs only Python; canary programs have a
copy of it.
"""
