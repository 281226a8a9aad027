"""``compatgate worker``, killed as by the kernel right after one of its calls has returned.

Arguments: the call as ``module:Class.method`` or ``module:Class.method:argument``, then those of
the command. A kill from outside could come at any moment; this one always comes at the same.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import Any


def die_after(call: str) -> None:
    """Have the process killed once a method has returned."""
    module, name, *wanted = call.split(":")
    owner_name, method = name.split(".")
    owner = getattr(importlib.import_module(module), owner_name)
    original = getattr(owner, method)

    def dying(*arguments: Any, **named: Any) -> Any:
        result = original(*arguments, **named)
        nothing = method == "lease" and result is None
        if not nothing and (not wanted or wanted[0] in arguments):
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, method, dying)


if __name__ == "__main__":
    from compatgate.cli.main import main

    die_after(sys.argv[1])
    sys.exit(main(["worker", *sys.argv[2:]]))
