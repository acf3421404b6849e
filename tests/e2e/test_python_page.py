"""The examples of docs/python.md, run in their order against a cluster of their own."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.e2e.cluster import assert_no_survivors

from muster.app.local import UpOptions, down, up

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


def test_examples_run_as_they_stand(tmp_path: Path) -> None:
    home = tmp_path / "home"
    script = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MUSTER_")}
    environment |= {"MUSTER_HOME": str(home), "XDG_CONFIG_HOME": str(tmp_path)}
    try:
        up(UpOptions(home, agents=1))
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=100,
        )
    finally:
        down(home)
    assert_no_survivors(home)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:3] == ["SUCCEEDED 0", "hello from 0", "hello from 1"]
    assert "there is no job 'no-such-job'" in done.stdout
    assert done.stdout.count("HEALTHY 127.0.0.1:") == 2
