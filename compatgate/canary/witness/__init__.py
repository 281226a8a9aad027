"""Witness of an execution from outside, so that an image cannot write its own evidence.

`challenge` signs the program's lines and checks what it computed, `processes` reads what the kernel
and NVML show of it, `contradict` compares both with what the program reported, and `interpreter`
packs the worker's Python for programs that need none of the image. docs/explanation/witnesses.md
says what remains possible.
"""
