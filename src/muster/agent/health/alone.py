"""The process of one check in Python: ``python -m muster.agent.health.alone NAME`` reads the facts
about the machine from standard input, and prints the check's report."""

import os
import sys

import msgspec

from muster.agent.health.check import CheckedMachine, PythonCheck
from muster.agent.health.found import check_class
from muster.core.errors import InvalidSpec
from muster.core.health.operator import write_report


def main() -> None:
    # Whatever a library prints is no part of the report.
    report = os.dup(1)
    os.dup2(2, 1)
    machine = msgspec.json.decode(sys.stdin.buffer.read(), type=CheckedMachine)
    try:
        check = check_class(sys.argv[1])()
    except InvalidSpec as error:
        sys.exit(str(error))
    if not isinstance(check, PythonCheck):
        sys.exit(f"{sys.argv[1]} is no check in Python")
    with os.fdopen(report, "w") as file:
        file.write(write_report(check.look(machine)))


if __name__ == "__main__":
    main()
