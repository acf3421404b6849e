"""Build hook: generates the modules of the agent protocol from `src/muster/wire/*.proto`.

The outputs lie beside the proto files, are ignored by git and go into wheels as artifacts.
Run as a script (`make proto`), it regenerates them in place.
"""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

OUTPUTS = (
    "--python_out=src",
    "--grpc_python_out=src",
    "--mypy_out=quiet:src",
    "--mypy_grpc_out=quiet:src",
)


def generate(root: Path) -> None:
    """Run protoc over every proto of the wire package.

    Raises `subprocess.CalledProcessError`; protoc has then said on stderr what is wrong where.
    """
    protos = sorted(str(proto.relative_to(root)) for proto in root.glob("src/muster/wire/*.proto"))
    if not protos:
        return
    # protoc finds its mypy plug-in on PATH, where an environment that is not activated has none.
    path = os.pathsep.join((sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)))
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", "-Isrc", *OUTPUTS, *protos],
        cwd=root,
        env={**os.environ, "PATH": path},
        check=True,
    )


class ProtoBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Called by hatchling before it collects the files of a wheel or an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        generate(Path(self.root))


if __name__ == "__main__":
    generate(Path(__file__).parent)
