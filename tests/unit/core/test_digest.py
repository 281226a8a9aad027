"""Digests are SHA-256, in whatever pieces and by whichever module they are made."""

import hashlib
import subprocess
import sys

import pytest

from compatgate.core.performance import sha256

LENGTHS = (0, 1, 2046, 2047, 2048, 4094, 4095, 5000, 100_000)


def text(length):
    return bytes(index * 31 % 251 for index in range(length))


@pytest.mark.parametrize("length", LENGTHS)
def test_a_text_of_any_length_has_its_sha256(length):
    assert sha256(text(length)) == hashlib.sha256(text(length)).hexdigest()


def test_a_question_about_a_pool_does_without_openssl():
    """Loading it would take longer than the answer."""
    program = """
import sys
from compatgate.cli.main import main
status = main(["check", "--pool", "driver=535.104.05,gpu=L4", "--stack", "cuda=12.4,arch=sm_89"])
assert status == 0, status
assert "hashlib" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
