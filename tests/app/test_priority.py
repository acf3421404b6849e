"""Controllers and agents run above kernels, with all of their threads."""

import json
import os
import subprocess
import sys

import pytest

SCRIPT = """
import asyncio, json, os, subprocess, sys, threading
from muster.agent.supervisor.process_priority import raise_priority
from muster.app import process

process.PRIORITY_EVERY_S = 0.01
NICE = "import os; print(os.getpriority(os.PRIO_PROCESS, 0))"

def nice():
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

async def main():
    raise_priority()
    staying = asyncio.create_task(process.stay_above_kernels())
    is_raised, seen = threading.Event(), {}

    def work():
        seen["at first"] = nice()
        is_raised.wait()
        seen["later"] = nice()
        seen["child"] = int(subprocess.check_output([sys.executable, "-c", NICE]))

    thread = threading.Thread(target=work)
    thread.start()
    await asyncio.sleep(0.5)
    is_raised.set()
    await asyncio.to_thread(thread.join)
    print(json.dumps({"main": nice(), **seen}))
    staying.cancel()

asyncio.run(main())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may raise its priority")
def test_thread_that_begins_later_is_raised_and_its_processes_are_not() -> None:
    as_usual = ["nice", "-n", str(-os.getpriority(os.PRIO_PROCESS, 0))]
    found = json.loads(subprocess.check_output(["setsid", *as_usual, sys.executable, "-c", SCRIPT]))
    assert found == {"main": -10, "at first": 0, "later": -10, "child": 0}
