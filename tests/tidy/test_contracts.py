"""The import contracts of pyproject.toml hold for a sound house and break for every bad import."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.files import ROOT

ROOMS = """
    advisor bounds catalog catalog/load cli console core core/arrays core/eviction core/limits
    core/placing core/policies core/queueing core/tenancy kubernetes kubernetes/admission
    kubernetes/api kubernetes/executing kubernetes/watching ledger loop model node objects server
    simulation texts
    """.split()


@pytest.fixture(scope="module")
def sound_house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A house with every room of the design and one module in each."""
    house = tmp_path_factory.mktemp("house")
    shutil.copy(ROOT / "pyproject.toml", house)
    (house / "src" / "shoal").mkdir(parents=True)
    (house / "src" / "shoal" / "__init__.py").touch()
    for room in ROOMS:
        folder = house / "src" / "shoal" / room
        folder.mkdir()
        (folder / "__init__.py").touch()
        (folder / "thing.py").touch()
    return house


def lint(house: Path) -> tuple[bool, str]:
    """Whether the contracts hold, and what was printed."""
    done = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=house,
        env=os.environ | {"PYTHONPATH": str(house / "src"), "COLUMNS": "300"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode == 0, done.stdout + done.stderr


def with_import(house: Path, folder: Path, module: str, statement: str) -> Path:
    shutil.copytree(house, folder)
    (folder / "src" / "shoal" / module).write_text(statement + "\n")
    return folder


def test_a_house_with_every_room_keeps_the_contracts(sound_house: Path) -> None:
    kept, printed = lint(sound_house)
    assert kept, printed


@pytest.mark.parametrize(
    ("module", "statement", "contract"),
    [
        ("core/thing.py", "import shoal.loop.thing", "Imports run down"),
        ("model/thing.py", "import shoal.catalog", "Imports run down"),
        ("catalog/thing.py", "import shoal.core", "Imports run down"),
        ("ledger/thing.py", "from shoal.node import thing", "Imports run down"),
        ("loop/thing.py", "import shoal.bounds", "Imports run down"),
        ("texts/thing.py", "import shoal.objects", "Imports run down"),
        ("catalog/load/thing.py", "import shoal.objects", "Imports run down"),
        ("stranger.py", "", "Imports run down"),
        ("catalog/thing.py", "import shoal.catalog.load.thing", "The catalogue's values"),
        ("catalog/__init__.py", "from shoal.catalog import load", "The catalogue's values"),
        ("core/thing.py", "import shoal.catalog.load", "The catalogue's values"),
        ("core/thing.py", "import os", "No chain"),
        ("model/thing.py", "from asyncio import run", "No chain"),
        ("core/thing.py", "import time", "No chain"),
        ("core/arrays/thing.py", "import shoal.core.tenancy.thing", "The arrays of the core"),
        ("kubernetes/api/thing.py", "import shoal.kubernetes.watching", "Reaching an API server"),
        ("model/thing.py", "import numpy", "numpy"),
        ("loop/thing.py", "import highspy", "Linear programs"),
        ("server/thing.py", "import sqlalchemy", "SQL"),
        ("kubernetes/thing.py", "import grpc", "gRPC"),
        ("simulation/thing.py", "import rich", "Only the command line"),
        ("ledger/thing.py", "import aiohttp", "The Kubernetes adapter"),
        ("core/thing.py", "import pydantic", "What people write"),
    ],
)
def test_a_bad_import_breaks_its_contract(
    sound_house: Path, tmp_path: Path, module: str, statement: str, contract: str
) -> None:
    kept, printed = lint(with_import(sound_house, tmp_path / "house", module, statement))
    assert not kept
    broken = [line for line in printed.splitlines() if line.endswith("BROKEN")]
    assert any(line.startswith(contract) for line in broken), printed


def test_a_chain_through_another_room_breaks_the_pure_contract(
    sound_house: Path, tmp_path: Path
) -> None:
    house = with_import(sound_house, tmp_path / "house", "catalog/thing.py", "import time")
    (house / "src/shoal/core/thing.py").write_text("import shoal.catalog.thing\n")
    kept, printed = lint(house)
    assert not kept
    assert "shoal.core.thing -> shoal.catalog.thing" in printed


@pytest.mark.parametrize(
    ("module", "statement"),
    [
        ("catalog/load/thing.py", "import yaml, pydantic, shoal.core.thing, shoal.catalog.thing"),
        ("objects/thing.py", "import pydantic, shoal.catalog.load.thing"),
        ("core/thing.py", "import numpy, shoal.catalog.thing, shoal.model.thing"),
        ("bounds/thing.py", "import highspy, numpy, shoal.core"),
        ("cli/thing.py", "import rich, cyclopts, shoal.simulation, shoal.kubernetes"),
    ],
)
def test_a_good_import_keeps_the_contracts(
    sound_house: Path, tmp_path: Path, module: str, statement: str
) -> None:
    kept, printed = lint(with_import(sound_house, tmp_path / "house", module, statement))
    assert kept, printed
