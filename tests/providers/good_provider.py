"""An executable that does what a provider's should: its machines are entries of a file. A machine
that comes is up when it is listed next."""

import fcntl
import json
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    world, call = Path(sys.argv[1]), sys.argv[2]
    request = json.load(sys.stdin)
    tags = [request["cluster"], request["pool"]]
    world.touch()
    with world.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        machines: list[dict[str, Any]] = json.loads(file.read() or "[]")
        own = [each for each in machines if each["tags"] == tags]
        answer, kept = answer_to(call, request, own)
        fresh = [each for each in machines if each["tags"] != tags]
        fresh += [each | {"tags": tags} for each in kept]
        file.seek(0)
        file.truncate()
        json.dump(fresh, file)
    json.dump(answer, sys.stdout)


def answer_to(
    call: str, request: dict[str, Any], own: list[dict[str, Any]]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The answer, and the machines that there are from now on."""
    if call == "create":
        of_slice = [each for each in own if each["slice"] == request["slice"]]
        for wanted in request["machines"] if not of_slice else []:
            made = {
                "id": f"{'-'.join([request['pool'], request['slice']])}/{wanted['name']}",
                "slice": request["slice"],
                "name": wanted["name"],
                "state": "coming",
            }
            of_slice.append(made)
            own = [*own, made]
        return {"machines": [told(each) for each in of_slice]}, own
    if call == "list":
        return {"machines": [told(each) for each in own]}, [
            each | {"state": "running"} for each in own
        ]
    if call == "delete":
        return {"gone": True}, [each for each in own if each["slice"] != request["slice"]]
    if call == "reboot" and not any(each["id"] == request["machine"]["id"] for each in own):
        return {"error": {"outcome": "unknown", "told": "there is no such machine"}}, own
    return {}, own


def told(machine: dict[str, Any]) -> dict[str, Any]:
    return {key: machine[key] for key in ("id", "slice", "name", "state")}


if __name__ == "__main__":
    main()
