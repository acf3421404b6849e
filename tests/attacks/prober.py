"""The bystander as a process of its own, so that an attack in the test's process does not slow it.

A port and a token come by standard input; until that is closed a small job is handed in each tenth
of a second, over a connection of its own, and a line of JSON says what came of it: when, how many
seconds it took, and what went wrong.
"""

import http.client
import json
import select
import sys
import time

PAUSE_S = 0.1
TIMEOUT_S = 30.0
BODY = json.dumps({"command": ["true"], "max_retries_preemption": 10})


def main() -> None:
    port, token = sys.stdin.readline().split()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
        began_s = time.monotonic()
        error = _submit(int(port), headers)
        line = json.dumps([time.time(), time.monotonic() - began_s, error])
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def _submit(port: int, headers: dict[str, str]) -> str:
    """What went wrong; nothing if nothing did."""
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
