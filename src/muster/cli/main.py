"""The entry point of ``muster``. Everything else is imported once it is known to be needed."""

import gc
import os
import sys

GARBAGE_AFTER = 50_000
"""New objects before garbage is looked for: nearly all that a command makes are modules, which
stay."""


def main() -> None:
    """Run the command line, and end the process with its exit code."""
    # The question that scripts ask most needs no command line.
    if sys.argv[1:] == ["--version"] and sys.stdout is not None:
        from muster.version import __version__

        sys.stdout.write(f"muster {__version__}\n")
        _leave(0)
    gc.set_threshold(GARBAGE_AFTER)
    from muster.cli.program import app

    try:
        app()
    except SystemExit as end:
        _leave(end.code)


def _leave(code: "int | str | None") -> None:
    """End the process. Python would take every module apart first, which is a quarter of the time
    of a listing; it may where a part of the cluster ran in this process, whose files and threads
    are closed so."""
    if "muster.app" not in sys.modules and not isinstance(code, str):
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (AttributeError, OSError, ValueError):
            pass  # a stream that is closed, or that nobody reads: Python says so as it ends
        else:
            os._exit(code or 0)
    raise SystemExit(code)


if __name__ == "__main__":
    main()
