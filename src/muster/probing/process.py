"""The process that probes: `python -m muster.probing.process`.

It is a process beside the controller: 1,000 probes a second on a thread would take an eighth of its
speed from control, and threads that hang while they look names up can be ended only with their
process. It has no state that may not be lost: its performer tells it anew what is to be probed.

Its protocol is lines of JSON: on standard input, for a route, what is to be probed from now on or
nothing; on standard output lists of results, at least one a second. A text among the results is for
the log.
"""

import json
import os
import resource
import sys
import traceback
from contextlib import suppress

from muster.probing.loop import ProbeLoop
from muster.probing.names import Names

MAX_DESCRIPTORS = 4096


def main() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(MAX_DESCRIPTORS, hard)
    if soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    code = 0
    try:
        ProbeLoop(sys.stdin.fileno(), sys.stdout.fileno(), Names(), int(sys.argv[1])).run()
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        last = f"the probing process fails: {error!r} at {where.name}, line {where.lineno}"
        os.write(sys.stdout.fileno(), b"\n" + json.dumps([last[:500]]).encode() + b"\n")
        code = 1
    os._exit(code)  # threads that look names up may hang


if __name__ == "__main__":
    main()
