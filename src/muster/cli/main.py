"""The entry point of ``muster``. Everything else is imported once it is known to be needed."""

import gc
import os
import sys

GARBAGE_AFTER = 50_000
"""New objects before garbage is looked for: nearly all that a command makes are modules, which
stay."""
NOT_READ = 1
"""The exit code where nobody reads what is written, as ``cat`` has it."""


def main() -> None:
    """Run the command line, and end the process with its exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it is closed
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    code: int | str | None = None
    try:
        code = _run()
        sys.stdout.flush()
    except BrokenPipeError:
        code = code or NOT_READ
        _write_nothing_more()
    except OSError as error:
        from muster.cli import failures

        code = code or failures.report(error)  # else that was said
        _write_nothing_more()
    _leave(code)


def _run() -> "int | str | None":
    """Run the command line; the answer is its exit code."""
    if sys.argv[1:] == ["--version"]:  # what scripts ask most needs no command line
        from muster.version import __version__

        sys.stdout.write(f"muster {__version__}\n")
        return 0
    gc.set_threshold(GARBAGE_AFTER)
    from muster.cli.program import app

    try:
        app()
    except SystemExit as end:
        return end.code
    return 0


def _write_nothing_more() -> None:
    """Have what is left for stdout go nowhere: Python would try again as it ends, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _leave(code: "int | str | None") -> None:
    """End the process. Python would take every module apart first, which is a quarter of the time
    of a listing; it may where a part of the cluster ran in this process, whose files and threads
    are closed so."""
    if "muster.app" in sys.modules or isinstance(code, str):
        raise SystemExit(code)
    try:
        sys.stderr.flush()
    finally:
        os._exit(code or 0)


if __name__ == "__main__":
    main()
