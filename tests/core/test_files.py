"""What holds for all files of Python in this repository."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "tests", "benchmarks", "scripts", "demo")
GENERATED = {"agent_pb2.py", "agent_pb2_grpc.py"}
LONGEST = 450
"""Lines: what is longer does more than one thing."""


def test_no_file_is_longer_than_a_reader_can_hold() -> None:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in files
        if path.name not in GENERATED
    }
    assert {path.split("/")[0] for path in lengths} == set(FOLDERS)
    assert {path: length for path, length in lengths.items() if length > LONGEST} == {}
