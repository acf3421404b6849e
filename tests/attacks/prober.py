"""The bystander as a process of its own, so that an attack in the test's process does not slow it.

The controller's process id and port and a token come by standard input; until that is closed a
small job is handed in each tenth of a second, over a connection of its own. A line of JSON says
what came of it: when, how many seconds it would have taken on a machine of usual speed, and what
went wrong. The time for which threads of the controller and this one were ready and found no
processor is the machine's, and not counted.
"""

import http.client
import json
import select
import sys
import time
from pathlib import Path

from tests.attacks.pace import times_slower

PAUSE_S = 0.1
TIMEOUT_S = 30.0
BODY = json.dumps({"command": ["true"], "max_retries_preemption": 10})


def main() -> None:
    controller, port, token = sys.stdin.readline().split()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
        slower = times_slower()
        began_s, waited_s = time.monotonic(), _waited_s(controller)
        error = _submit(int(port), headers)
        machine_s = _waited_s(controller) - waited_s  # of threads side by side: more than passed
        took_s = max(time.monotonic() - began_s - machine_s, 0.0)
        usual_s = took_s / max(slower, times_slower())
        line = json.dumps([time.time(), usual_s, error])
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def _waited_s(controller: str) -> float:
    """For how long the controller and this process have waited for a processor (schedstat)."""
    waited_ns = 0
    for process in (controller, "self"):
        for thread in Path("/proc", process, "task").iterdir():
            try:
                waited_ns += int((thread / "schedstat").read_text().split()[1])
            except (OSError, IndexError):  # it has ended, or this system does not say
                continue
    return waited_ns / 1e9


def _submit(port: int, headers: dict[str, str]) -> str:
    """The failure of a submission in words; empty if it succeeded."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request("POST", "/v1/jobs", BODY, headers)
        answer = connection.getresponse()
        text = answer.read().decode(errors="replace")
        return "" if answer.status == 201 else f"{answer.status} {text[:300]}"
    except (OSError, http.client.HTTPException) as error:
        return repr(error)
    finally:
        connection.close()


if __name__ == "__main__":
    main()
