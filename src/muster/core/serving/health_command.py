"""Probes by command: a loop beside a replica's program runs the command, and notes how it ended.

The loop is one of the replica's own processes: it has the user, the environment, the directory and
the limits of the replica, and ends with it. The program is the replica's main process, as if there
were no loop. The agent reads what the loop has written, and trusts it as it trusts the answer of a
replica: it tells of that replica alone.
"""

from collections.abc import Sequence

VARIABLE = "MUSTER_HEALTH"
"""The variable of a replica that has the loop."""
SCRIPT_FILE = "muster-health"
"""The loop, in the scratch directory."""
RESULT_FILE = "muster-health-result"
"""The number of the probe and its exit code, and in the next line the last one of its output."""
MAX_RESULT_BYTES = 512
TIMED_OUT = 124
"""The exit code of a probe that was stopped at its time limit (coreutils, ``timeout``)."""
_KILLED = 137

SCRIPT = f"""#!/bin/sh
# INTERVAL TIMEOUT WORDS PROBE... COMMAND...: the command, and the probe again and again beside it.
interval=$1 timeout=$2 words=$3
shift 3
(
    (
        left=$words
        while [ "$left" -gt 0 ]; do
            set -- "$@" "$1"
            shift
            left=$((left - 1))
        done
        shift $(($# - words))
        result=$MUSTER_SCRATCH/{RESULT_FILE}
        number=0
        while :; do
            timeout -k 1 "$timeout" "$@" >"$result.output" 2>&1 &
            wait $!
            code=$?
            kill -s KILL -- "-$!"
            number=$((number + 1))
            {{
                echo "$number $code"
                tail -n 1 "$result.output" | cut -c 1-200
            }} >"$result.new" && mv -f "$result.new" "$result"
            sleep "$interval"
        done
    ) </dev/null >/dev/null 2>&1 &
)
shift "$words"
exec "$@"
"""


def beside(
    command: Sequence[str], probe: Sequence[str], interval_s: float, timeout_s: float
) -> list[str]:
    """The command of a replica with the loop beside its program."""
    words = [f"{interval_s:g}", f"{timeout_s:g}", str(len(probe)), *probe, *command]
    return ["/bin/sh", "-c", f'exec "$MUSTER_SCRATCH/{SCRIPT_FILE}" "$@"', SCRIPT_FILE, *words]


def found_by(code: int, line: str, timeout_s: float) -> str:
    """The words for how a probe ended."""
    said = f": {line}" if line else ""
    if code in (TIMED_OUT, _KILLED):
        return f"its command did not end within {timeout_s:g} s{said}"
    return f"its command ended with exit code {code}{said}"
