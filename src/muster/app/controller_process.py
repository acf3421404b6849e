"""The controller as a process: `python -m muster.app.controller_process`, settings on stdin.

With ``--detach`` the process has no parent that waits for it: see ``_detach``. With ``--keep`` it
is not the controller, but its keeper, which starts it again after a crash: see ``keeper``.
"""

import os
import sys


def main() -> None:
    if "--detach" in sys.argv:
        _detach()
    if "--keep" in sys.argv:
        from muster.app.keeper import keep

        raise SystemExit(keep(sys.stdin.read()))
    # Imported after the fork, which threads of a library would not survive.
    from muster.app.controller import serve
    from muster.app.controller_config import load_controller
    from muster.app.process import run_process

    run_process("muster controller", serve(load_controller(sys.stdin.read())))


def _detach() -> None:
    """Go on in a child and end, so that the process that started this one has nothing to wait for,
    and the system reaps the controller. The child's process id goes to standard output."""
    child = os.fork()
    if child:
        os.write(1, str(child).encode())
        os._exit(0)
    os.dup2(2, 1)


if __name__ == "__main__":
    main()
