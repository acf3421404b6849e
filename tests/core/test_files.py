"""What holds for all source files."""

from pathlib import Path

import muster

LONGEST = 450
"""Lines: what is longer does more than one thing."""


def test_no_file_is_longer_than_a_reader_can_hold() -> None:
    source = Path(muster.__file__).parent
    generated = {"agent_pb2.py", "agent_pb2_grpc.py"}
    files = [path for path in source.rglob("*.py") if path.name not in generated]
    lengths = {str(path): len(path.read_text().splitlines()) for path in files}
    assert {path: length for path, length in lengths.items() if length > LONGEST} == {}
