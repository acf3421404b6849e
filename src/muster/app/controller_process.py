"""The controller as a process: `python -m muster.app.controller_process`, settings on stdin."""

import sys

from muster.app.controller import serve
from muster.app.controller_config import load_controller
from muster.app.process import run_process

if __name__ == "__main__":
    run_process("muster controller", serve(load_controller(sys.stdin.read())))
