"""Run nvbandwidth, and print an env line in addition to its output."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# In a container next to the program; in the repository and in an installation elsewhere.
sys.path[:0] = [
    os.path.join(HERE, "lib"),
    os.path.join(HERE, os.pardir, "lib"),
    os.path.join(HERE, os.pardir, os.pardir, "compatgate", "diagnostics"),
    os.path.join(HERE, os.pardir, os.pardir, os.pardir, "diagnostics"),
]

import canary_tool  # noqa: E402

if __name__ == "__main__":
    sys.exit(canary_tool.main())
