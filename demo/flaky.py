"""A task that fails twice before it succeeds."""

import os
import sys

FAILURES = 2


def main() -> None:
    attempt = int(os.environ["MUSTER_ATTEMPT"])
    if attempt <= FAILURES:
        sys.exit(f"attempt {attempt} fails, as planned")
    print(f"attempt {attempt} succeeds")


if __name__ == "__main__":
    main()
