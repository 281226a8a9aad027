"""Keep a GPU busy for hours, and watch for drift, leaks, Xid, ECC and throttling."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import canary_env  # noqa: E402
import canary_lines as say  # noqa: E402
import canary_program as program  # noqa: E402

LOADS = ("transformer", "convnet", "gemm", "attention")


def main():
    """Work, window after window, then report the checks."""
    options = _options()
    _, device = canary_env.torch(options)
    import loads
    import verdicts
    import watch

    works = {name: loads.load(name, options.seed, device) for name in options.load or LOADS}
    share = options.length / options.windows / len(works)
    times = {name: [] for name in works}
    with watch.Watch(device) as watching:
        for done in range(options.windows):
            for name, work in works.items():
                times[name].append(loads.keep_at(work, share, device, watching.look))
                say.metric(name, "ms", [times[name][-1]])
            watching.window(loads.fingerprint(works, options.seed, device))
            say.progress((done + 1) / options.windows)
        verdicts.report(times, watching, shared=device.type == "cpu")


def _options():
    parser = program.parser(__doc__)
    parser.add_argument("--for", dest="length", type=program.duration, default=3600.0, metavar="4h")
    parser.add_argument(
        "--windows", type=int, default=120, help="number of windows that are compared"
    )
    parser.add_argument(
        "--load", action="append", choices=LOADS, help="work to repeat (default: all in turn)"
    )
    options = parser.parse_args()
    if options.windows < 4:
        parser.error(
            "argument --windows: must be at least 4, to compare the first and the last quarter"
        )
    return options


if __name__ == "__main__":
    program.start(main)
