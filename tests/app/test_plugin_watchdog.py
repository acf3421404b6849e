"""A plug-in that hangs without running lines of Python is given up by the clock."""

import subprocess
import sys

import pytest

# A process of its own: the alarm is one of the process, and belongs to pytest here.
SCRIPT = """
import re, sys, time
from muster.app import plugin_watchdog
from muster.scheduling.policy import guard
from muster.scheduling.policy.guard import PluginFault, _Leash

guard.MAX_LINES = 10_000
plugin_watchdog.LONGEST_S = 0.3
plugin_watchdog.watch_plugins()

def sleeps():
    time.sleep(60)

def matches():
    return re.match("(a+)+$", "a" * 60 + "!")

def catches():
    for _ in range(2):
        try:
            time.sleep(60)
        except BaseException:
            pass
    time.sleep(60)

def loops():
    while True:
        pass

def returns():
    return 7

leash = _Leash("selector", "slow")
began = time.monotonic()
try:
    answer = leash.call(globals()[sys.argv[1]])
except PluginFault as fault:
    print(fault)
else:
    print(answer)
assert time.monotonic() - began < 10
time.sleep(0.7)  # the alarm is off
assert sys.gettrace() is None
"""


@pytest.mark.parametrize(
    ("plugin", "said"),
    [
        ("sleeps", "selector 'slow' ran for more than 0.3 s in one call"),
        ("matches", "selector 'slow' ran for more than 0.3 s in one call"),
        ("catches", "selector 'slow' ran for more than 0.3 s in one call"),
        ("loops", "selector 'slow' ran for more than 10000 lines in one call"),
        ("returns", "7"),
    ],
)
def test_plugin_that_hangs_is_given_up_and_one_that_does_not_is_left_alone(
    plugin: str, said: str
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, plugin],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == said
