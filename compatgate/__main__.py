"""``python -m compatgate``."""

import sys

from compatgate.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
