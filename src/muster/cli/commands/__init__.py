"""A module a command.

What takes long to import (HTTP, specs, the processes of ``muster.app``) stands inside functions,
so that ``muster --help`` and completion are quick.
"""
