"""Run a canary program with a fault of canary_faults.toml; for canary_cpu.py and the tests.

    python3 faulty.py NUMBER program.py ARGUMENT...

Python 3.11 or newer, with what the program needs.
"""

import os
import runpy
import sys
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))


def main() -> None:
    """Make the fault, then run the program as if it had been called itself."""
    with open(os.path.join(HERE, "canary_faults.toml"), "rb") as file:
        fault = tomllib.load(file)["fault"][int(sys.argv[1])]
    sys.argv = sys.argv[2:]
    folder = os.path.dirname(os.path.abspath(sys.argv[0]))
    sys.path[:1] = [folder, os.path.join(folder, os.pardir, "lib")]
    import canary_timing

    measure, running = canary_timing.measure, []

    def measured(*given: object, **how: object) -> object:
        running.append(None)
        try:
            return measure(*given, **how)
        finally:
            running.pop()

    canary_timing.measure = measured
    exec(fault["code"], {"timed": lambda: bool(running)})
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
