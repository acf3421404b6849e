"""The client is a distribution of its own, which needs little and brings no server."""

import importlib.metadata
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from tests.client.authority import served

ROOT = Path(__file__).parents[2]
SERVERS = ("alembic", "click", "fastapi", "grpc", "numpy", "rich", "sqlalchemy", "uvicorn")
PROGRAM = f"""
import asyncio, importlib.util, sys
from muster.client import AsyncClient, Client
from muster.core.specs import JobSpec

async def jobs(url):
    async with AsyncClient(url, "token") as client:
        return await client.jobs()

url = sys.argv[1]
assert Client(url, "token").jobs() == asyncio.run(jobs(url)) == []
print(JobSpec(command=["date"]).command)
print([each for each in {SERVERS!r} if importlib.util.find_spec(each)])
"""


def needed(requirement: str, known: set[str]) -> set[str]:
    """The names of distributions that a requirement brings, with those that they need."""
    name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
    if name in known or "extra ==" in requirement:
        return known
    try:
        found = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        return known  # for another system or Python than this
    known.add(name)
    for each in found:
        needed(each, known)
    return known


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(made)],
        cwd=ROOT / "distributions" / "client",
        check=True,
        capture_output=True,
    )
    (wheel,) = made.iterdir()
    return wheel


def test_wheel_of_the_client_holds_the_client_and_what_it_stands_on(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        files = {Path(name) for name in archive.namelist()}
    folders = {file.parts[1] for file in files if file.parts[0] == "muster" and len(file.parts) > 2}
    assert folders == {"client", "core"}
    assert {file.suffix for file in files if file.parts[0] == "muster"} == {".py", ".typed"}
    assert Path("muster/client/client.py") in files


def test_client_works_in_an_environment_that_has_no_server(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path, with_pip=False)
    (site,) = (tmp_path / "lib").glob("python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    keys = tomllib.loads((ROOT / "distributions" / "client" / "pyproject.toml").read_text())
    names: set[str] = set()
    for requirement in keys["project"]["dependencies"]:
        needed(requirement, names)
    here = Path(sysconfig.get_path("purelib"))
    for name in names:
        for file in importlib.metadata.files(name) or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (site / top).exists():
                (site / top).symlink_to(here / top)
    with served(b'{"items": []}') as port:
        ran = subprocess.run(
            [tmp_path / "bin" / "python", "-I", "-c", PROGRAM, f"http://127.0.0.1:{port}"],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert (ran.stdout, ran.stderr) == ("['date']\n[]\n", "")
