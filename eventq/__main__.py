"""`python -m eventq` is the command line, as `eventq` is."""

import sys

from eventq.cli.main import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
