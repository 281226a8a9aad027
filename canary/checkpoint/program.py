"""Load a checkpoint of another stack, continue from it, and save and load one here."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "lib")]
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import canary_env  # noqa: E402
import canary_program as program  # noqa: E402


def main():
    """Check the checkpoint of another stack, or save one for another stack."""
    parser = program.parser(__doc__)
    parser.add_argument(
        "--saved",
        default=os.path.join(HERE, "saved"),
        help="folder that another stack saved to (default: the shipped one)",
    )
    parser.add_argument(
        "--save", metavar="DIR", help="save a checkpoint there for another stack, and exit"
    )
    options = parser.parse_args()
    _, device = canary_env.torch(options, role="saves" if options.save else "loads")
    import another
    import same

    if options.save:
        another.save(options.save, options.seed, device)
        return
    steps = program.Steps(3)
    another.check(options.saved, device)
    steps.done()
    same.check(options.seed, device)
    steps.done()
    same.measure(options, device)
    steps.done()


if __name__ == "__main__":
    program.start(main)
