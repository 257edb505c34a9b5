"""The command line says what the library says, and its exit status can be relied upon."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from click.testing import Result
from pydantic import ValidationError
from typer.testing import CliRunner

import blasdx as dx
from blasdx.cli.app import TILE, app
from blasdx.cli.text import descriptor_from_text

SMALL = TILE.replace("Size(128,256,64)", "Size(64,64,64)")
SLOW_PATH = TILE.replace("BlockDim(128)", "BlockDim(256)")
COMMANDS = ("check", "render", "compile", "sass", "run", "emulate", "selftest", "env")


def blasdx(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example(command: str) -> None:
    result = blasdx(command, "--help")
    assert result.exit_code == 0
    assert f"blasdx {command}" in result.output.split("Example:")[1]


def test_check_prints_the_report() -> None:
    result = blasdx("check", TILE)
    assert result.exit_code == 0
    assert result.output.rstrip("\n") == str(dx.check(descriptor_from_text(TILE)))


def test_check_as_json() -> None:
    result = blasdx("check", descriptor_from_text(SLOW_PATH).model_dump_json(), "--json")
    assert result.exit_code == 0
    assert json.loads(result.output)["path"] == "supermma"


def test_check_require() -> None:
    assert blasdx("check", TILE, "--require", "utcmma").exit_code == 0
    missed = blasdx("check", SLOW_PATH, "--require", "utcmma")
    assert missed.exit_code == 1
    assert "block-dim" in missed.stderr
    assert blasdx("check", SLOW_PATH, "--require", "supermma").exit_code == 0
    assert blasdx("check", TILE, "--require", "fastest").exit_code == 2


def test_an_illegal_field_is_named_without_a_traceback() -> None:
    result = blasdx("check", TILE.replace("128,256,64", "-1,256,64"))
    assert result.exit_code == 2
    assert "Size" in result.stderr
    assert "-1" in result.stderr
    assert "Traceback" not in result.stderr


def test_text_that_is_no_descriptor() -> None:
    result = blasdx("check", "open('secret')")
    assert result.exit_code == 2
    assert "no operator is called open" in result.stderr


def test_render(tmp_path: Path) -> None:
    expected = dx.render(dx.suggest_pipeline(descriptor_from_text(TILE), depth=3)).text
    assert blasdx("render", TILE, "--depth", 3).output == expected
    result = blasdx("render", TILE, "--depth", 3, "-o", tmp_path / "gemm.cu")
    assert result.exit_code == 0
    assert (tmp_path / "gemm.cu").read_text() == expected


def test_a_tile_that_does_not_fit() -> None:
    result = blasdx("render", TILE, "--depth", 5)
    assert result.exit_code == 1
    assert "PlanError" in result.stderr


def test_compile_and_sass(tmp_path: Path) -> None:
    result = blasdx("compile", SMALL, "-o", tmp_path)
    assert result.exit_code == 0, result.output
    assert {path.suffix for path in tmp_path.iterdir()} == {".cu", ".ptx", ".cubin"}
    proof = blasdx("sass", SMALL, "--require", "UTC[A-Z]*MMA")
    assert proof.exit_code == 0, proof.output
    assert proof.output.startswith("4 instructions match")
    assert blasdx("sass", SMALL, "--require", "HMMA").exit_code == 1
    assert "UTCHMMA" in blasdx("sass", SMALL).output


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)])
def test_run(tmp_path: Path, dtype: np.dtype) -> None:
    random = np.random.default_rng(0)
    a, b = random.integers(-3, 4, (5, 37)), random.integers(-3, 4, (37, 70))
    c = random.integers(-3, 4, (5, 70)).astype(np.float32)
    np.save(tmp_path / "a.npy", a.astype(dtype))
    np.save(tmp_path / "b.npy", np.asfortranarray(b.astype(dtype)))
    np.save(tmp_path / "c.npy", c)
    files = [tmp_path / "a.npy", tmp_path / "b.npy", "-o", tmp_path / "out.npy"]
    result = blasdx("run", *files, "--device", "emulator")
    assert result.exit_code == 0, result.output
    assert (np.load(tmp_path / "out.npy") == a @ b).all()
    result = blasdx("run", *files, "-c", tmp_path / "c.npy", "--alpha", 2, "--beta", -1, "--device", "emulator")
    assert result.exit_code == 0, result.output
    assert (np.load(tmp_path / "out.npy") == 2 * (a @ b) - c).all()


def test_run_refuses_what_does_not_fit(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((8, 16), np.float16))
    np.save(tmp_path / "b.npy", np.zeros((24, 8), np.float16))
    result = blasdx("run", tmp_path / "a.npy", tmp_path / "b.npy", "-o", tmp_path / "c.npy", "--device", "emulator")
    assert result.exit_code == 1
    assert "OperandError" in result.stderr
    assert not (tmp_path / "c.npy").exists()
    result = blasdx("run", tmp_path / "none.npy", tmp_path / "b.npy", "-o", tmp_path / "c.npy")
    assert result.exit_code == 1
    assert "none.npy" in result.stderr


def refused(*arguments: object) -> str:
    """The one line on standard error of a command that exits with 2."""
    result = blasdx(*arguments)
    assert result.exit_code == 2, (result.output, result.exception)
    assert not result.stdout
    (line,) = result.stderr.splitlines()
    return line


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Size(1,2,3,4)", "Size takes 3 arguments (m, n, k), 4 given"),
        ("MaxAlignment(1)", "MaxAlignment(1): "),
        ("Size(1, m=2)", "Size got m by position and by keyword"),
        ('{"operators":5}', "operators by name"),
        ('{"operators":[5]}', "operators by name"),
        ('{"operators":"Block"}', "operators by name"),
        ('{"operators":{"Block":5}}', "Block"),
        ('{"operators":', "EOF"),
        ("[]", "sum of operators"),
        ("Size(", "no descriptor"),
        ("Block() + Block()", "twice"),
        ("nul\0", "no descriptor"),
        ("a" * 5000, "sum of operators"),
        ("(" * 5000, "no descriptor"),
        ("", "sum of operators"),
    ],
)
def test_malformed_descriptors_are_one_line(text: str, told: str) -> None:
    assert told in refused("check", text)


@pytest.mark.parametrize("value", [5, None, "Block", ["Block"], [1]])
def test_operators_of_another_shape_are_a_validation_error(value: object) -> None:
    with pytest.raises(ValidationError, match="operators by name"):
        dx.Descriptor.model_validate_json(json.dumps({"operators": value}))


def test_descriptor_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tile.txt").write_text(TILE + "\n")
    assert blasdx("check", "tile.txt").exit_code == 0
    Path("notutf8.txt").write_bytes(b"Size(1,2,3) \xff")
    assert "not UTF-8" in refused("check", "notutf8.txt")
    Path("itself.txt").write_text("itself.txt")
    assert "sum of operators" in refused("check", "itself.txt")


def test_require_offers_what_it_takes() -> None:
    assert "unsupported" not in blasdx("check", "--help").output
    result = blasdx("check", "Block()", "--require", "unsupported")
    assert result.exit_code == 2
    assert "'fma'" in result.stderr


def test_sass_refuses_a_broken_expression() -> None:
    assert "'([' is no regular expression" in refused("sass", SMALL, "--require", "([")


@pytest.mark.parametrize("kind", ["objects", "truncated", "cut header", "absurd", "junk", "empty", "archive"])
def test_run_refuses_files_that_hold_no_matrix(tmp_path: Path, kind: str) -> None:
    good, bad = tmp_path / "a.npy", tmp_path / "bad.npy"
    np.save(good, np.zeros((8, 16), np.float16))
    data = good.read_bytes()
    if kind == "objects":
        np.save(bad, np.array([[{}]], object), allow_pickle=True)
    elif kind == "archive":
        with bad.open("wb") as file:
            np.savez(file, np.zeros((8, 16), np.float16))
    else:
        bad.write_bytes(
            {
                "truncated": data[:-5],
                "cut header": data[:40],
                "absurd": data.replace(b"(8, 16), }      ", b"(8, 1600000000)}"),
                "junk": b"PK junk" * 20,
                "empty": b"",
            }[kind]
        )
    line = refused("run", good, bad, "-o", tmp_path / "c.npy", "--device", "emulator")
    assert "bad.npy" in line
    assert not (tmp_path / "c.npy").exists()


def test_run_writes_the_file_that_was_named(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones((8, 16), np.float16))
    np.save(tmp_path / "b.npy", np.ones((16, 8), np.float16))
    output = tmp_path / "result.out"
    result = blasdx("run", tmp_path / "a.npy", tmp_path / "b.npy", "-o", output, "--device", "emulator")
    assert result.exit_code == 0, result.output
    assert str(output) in result.output
    assert (np.load(output) == 16).all()
    assert not (tmp_path / "result.out.npy").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("run", "a.npy", "b.npy", "-o", "c.npy", "--device", "tpu"), "'tpu'"),
        (("selftest", "--device", "nope"), "'nope'"),
        (("selftest", "--seed", "-1"), "seed"),
    ],
)
def test_option_values_that_are_none(arguments: tuple[str, ...], told: str) -> None:
    result = blasdx(*arguments)
    assert result.exit_code == 2
    assert told in result.stderr
    assert "Traceback" not in result.stderr


def test_version() -> None:
    assert blasdx("--version").output == f"blasdx {dx.__version__}\n"
    command = [sys.executable, "-m", "blasdx", "--version"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout == f"blasdx {metadata.version('blasdx')}\n"


def test_the_version_of_what_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    assert dx.__version__ == "unknown"
    with pytest.raises(AttributeError, match="nonsense"):
        dx.nonsense  # noqa: B018


def test_env() -> None:
    result = blasdx("env")
    assert result.exit_code == 0
    assert "nvrtc in use" in result.output


def test_without_its_packages_the_command_says_how_to_get_them() -> None:
    code = "import sys; sys.modules['typer'] = None; from blasdx.cli import main; main()"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert run.returncode == 1
    assert run.stderr.strip() == "the command line needs typer: pip install 'blasdx[cli]'"
