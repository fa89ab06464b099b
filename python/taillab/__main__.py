"""`python -m taillab ARGUMENTS` is the program with these arguments."""

import sys

from taillab._program import main

if __name__ == "__main__":
    sys.exit(main())
