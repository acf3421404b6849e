"""The script of a supervisor, run under `python -I -S`: without site-packages it needs a third of
the time to start, and of the memory."""

import sys

if not __package__:
    # Appended, not put first: the folder may hold packages that shadow the standard library.
    sys.path.append(__file__.rsplit("/", 4)[0])

from muster.agent.supervisor.main import main

if __name__ == "__main__":
    main(sys.argv[1:])
