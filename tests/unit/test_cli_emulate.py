"""``blasdx emulate``: each kind of parameter and buffer, what it prints, and what it refuses."""

from __future__ import annotations

import copy
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from blasdx.cli.app import app
from blasdx.cli.launch_spec import LaunchSpec
from tests.emulator.toolchain import ptx, source

DOCS = Path(__file__).parents[2] / "docs" / "emulator.md"
SPEC: dict[str, Any] = {
    "entry": "tile",
    "grid": [1],
    "block": [256],
    "buffers": {
        "x": {
            "dtype": "f32", "shape": [8, 64], "strides": [68, 1],
            "init": {"kind": "ints", "low": -9, "high": 9, "seed": 4},
        },
        "add": {"dtype": "f32", "shape": [256], "init": {"kind": "npy", "path": "add.npy"}},
        "out": {"dtype": "f32", "shape": [256], "init": {"kind": "fill", "value": -1}},
    },
    "parameters": [
        {"kind": "tensor_map", "buffer": "x", "box": [32, 8]},
        {
            "kind": "bytes", "hex": "00" * 16,
            "fixups": [
                {"at": 0, "value": {"kind": "pointer", "buffer": "add"}},
                {"at": 8, "value": {"kind": "scalar", "dtype": "f32", "value": 0.5}},
            ],
        },
        {"kind": "pointer", "buffer": "out"},
        {"kind": "null"},
        {"kind": "scalar", "dtype": "s32", "value": 32},
    ],
    "outputs": [{"buffer": "out", "path": "out.npy", "expected": "want.npy"}],
    "names": {"warp 0": "load", "mbarrier 0x800": "full"},
}  # fmt: skip


def blasdx(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tile.ptx").write_text(ptx(source("tile.cu")))
    add = np.arange(256, dtype=np.float32)
    np.save(tmp_path / "add.npy", add)
    x = np.random.default_rng(4).integers(-9, 9, (8, 64), endpoint=True).astype(np.float32)
    np.save(tmp_path / "want.npy", 0.5 * x[:, 32:].reshape(-1) + add)
    return tmp_path


def emulate(folder: Path, spec: Any = SPEC, *options: object, module: str = "tile.ptx") -> Result:
    (folder / "launch.json").write_text(spec if isinstance(spec, str) else json.dumps(spec))
    return blasdx("emulate", folder / module, "--spec", folder / "launch.json", *options)


def changed(path: str, value: Any) -> dict[str, Any]:
    """The document with one entry replaced, added, or (None) removed."""
    spec = copy.deepcopy(SPEC)
    *way, last = path.split("/")
    at: Any = spec
    for key in way:
        at = at[int(key)] if isinstance(at, list) else at[key]
    if isinstance(at, list):
        at[int(last)] = value
    elif value is None:
        del at[last]
    else:
        at[last] = value
    return spec


@pytest.mark.parametrize("schedule", ["eager", "lazy", "adversarial", "random"])
def test_every_kind_of_parameter(folder: Path, schedule: str) -> None:
    result = emulate(folder, SPEC, "--schedule", schedule, "--seed", 3)
    assert result.exit_code == 0, result.output
    assert "out: all 256 elements are as expected" in result.output
    assert "1 tma-load" in result.output
    np.testing.assert_array_equal(np.load(folder / "out.npy"), np.load(folder / "want.npy"))


def test_a_bias_instead_of_null_and_a_number_that_is_wrong(folder: Path) -> None:
    spec = changed("parameters/3", {"kind": "pointer", "buffer": "add", "offset": 0})
    result = emulate(folder, spec)
    assert result.exit_code == 1
    assert re.search(r"out: 255 of 256 elements are wrong, the first at \(1,\); largest difference 255", result.output)
    spec["outputs"][0]["atol"] = 255
    assert emulate(folder, spec).exit_code == 0


def test_the_trace_is_a_time_line(folder: Path) -> None:
    result = emulate(folder, SPEC, "--trace", folder / "trace.json", "--schedule", "lazy")
    assert result.exit_code == 0
    document = json.loads((folder / "trace.json").read_text())
    events = document["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in spans} == set(threads)
    names = set(threads.values())
    assert "warp 0 (load)" in names
    assert "tma" in names
    (load,) = [e for e in spans if e["name"].startswith("tma-load")]
    assert "cp.async.bulk.tensor.2d" in load["args"]["ptx"]
    assert load["dur"] > 0
    assert any(e["name"].startswith("wait") and "mbarrier" in e["name"] for e in spans)
    # Spans of one thread do not overlap: the format allows nesting only.
    for key in threads:
        own = sorted((e["ts"], e["ts"] + e["dur"]) for e in spans if (e["pid"], e["tid"]) == key)
        assert all(a[1] <= b[0] for a, b in pairwise(own))


def test_hazards_are_printed_and_decide_the_exit_status(folder: Path) -> None:
    (folder / "race.ptx").write_text(ptx(source("tile.cu"), "BREAK_WAIT"))
    result = emulate(folder, SPEC, "--schedule", "eager", module="race.ptx")
    assert result.exit_code == 1
    assert "error: shared-read-before-load-complete" in result.output
    assert "error:" not in emulate(folder, SPEC, "--schedule", "eager", "--no-check", module="race.ptx").output


def test_a_hang_is_reported(folder: Path) -> None:
    (folder / "hang.ptx").write_text(ptx(source("tile.cu"), "BREAK_HANG"))
    result = emulate(folder, SPEC, "--trace", folder / "hang.json", module="hang.ptx")
    assert result.exit_code == 1
    assert "DeadlockError" in result.stderr
    spans = [e for e in json.loads((folder / "hang.json").read_text())["traceEvents"] if e["ph"] == "X"]
    last = max(spans, key=lambda e: e["ts"] + e["dur"])
    assert last["cat"] == "warp"
    assert "mbarrier" in last["name"]
    assert emulate(folder, SPEC, "--max-instructions", 100_000, module="tile.ptx").exit_code == 0
    result = emulate(folder, SPEC, "--max-instructions", 100, module="tile.ptx")
    assert result.exit_code == 1
    assert "LivelockError: max_instructions = 100 passed" in result.stderr


PARAMETER = "tile_param_"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("entry", "nothing", "no entry 'nothing'; it has: tile"),
        ("grid", [0], "grid"),
        ("block", [2048], "2048 threads"),
        ("cluster", [2], "multiple of the cluster"),
        ("dynamic_smem", 1 << 20, "232448"),
        ("dynamic_smem", -1, "dynamic_smem"),
        ("gird", [1], "gird"),
        ("parameters/4", {"kind": "scalar", "dtype": "s64", "value": 32}, f"parameter {PARAMETER}4"),
        ("parameters/4", {"kind": "scalar", "dtype": "u8", "value": 300}, "0 to 255"),
        ("parameters/4", {"kind": "number", "value": 300}, "parameters.4"),
        ("parameters/2", {"kind": "pointer", "buffer": "y"}, "names buffer 'y'; there are: x, add, out"),
        ("parameters/2", {"kind": "pointer", "buffer": "out", "offset": 1025}, "outside buffer out of 1024 bytes"),
        ("parameters/2", {"kind": "pointer", "buffer": "out", "offset": 8}, r"PTX line \d+.*in no buffer"),
        ("parameters/0/box", [33, 8], f"parameter {PARAMETER}0: TensorMap box"),
        ("parameters/0/box", [32], f"parameter {PARAMETER}0: TensorMap box"),
        ("parameters/0/swizzle", "96B", "swizzle"),
        ("parameters/0/dtype", "f17", "f17"),
        ("parameters/0/offset", 4, "multiple of 16"),
        ("parameters/0/strides_bytes", [24], "multiples of 16"),
        ("parameters/1/hex", "00", "does not fit into 1 bytes"),
        ("parameters/1/hex", "0g", "parameters.1"),
        ("parameters/1/hex", "00" * 12, "12"),
        ("buffers/x/strides", [68], "1 strides for 2 dimensions"),
        ("buffers/x/shape", [1 << 20, 1 << 20], "at most"),
        ("buffers/x/bytes", 100, "reach"),
        ("buffers/add/init/path", "missing.npy", "missing.npy"),
        ("buffers/add/init/path", "tile.ptx", "tile.ptx|magic|pickle"),
        ("buffers/add/shape", [255], "shape"),
        ("buffers/add/dtype", "f16", "float16"),
        ("buffers/out/init/value", "x", "buffers.out"),
        ("outputs/0/buffer", "y", "names buffer 'y'"),
        ("outputs/0/expected", "missing.npy", "missing.npy"),
        ("outputs/0/path", "no/such/folder.npy", "folder.npy"),
        ("parameters", [], "5 parameter"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_the_document_is_named(folder: Path, path: str, value: Any, message: str) -> None:
    result = emulate(folder, changed(path, value))
    assert result.exit_code == 2, result.output
    assert re.search(message, result.stderr), result.stderr
    assert "Traceback" not in result.output


def test_what_is_wrong_in_the_ptx_is_named(folder: Path) -> None:
    text = ptx(source("tile.cu"))
    number = next(n for n, line in enumerate(text.splitlines(), 1) if "cp.async.bulk.tensor" in line)
    (folder / "bad.ptx").write_text(text.replace("cp.async.bulk.tensor.2d", "cp.async.bulk.tensor.7d"))
    result = emulate(folder, module="bad.ptx")
    assert result.exit_code == 2
    assert f"PTX line {number}" in result.stderr
    (folder / "bad.ptx").write_text(text[: len(text) // 2])
    assert emulate(folder, module="bad.ptx").exit_code == 2
    (folder / "bad.ptx").write_bytes(b"\xff\xfe\x00")
    assert emulate(folder, module="bad.ptx").exit_code == 2
    assert emulate(folder, "{", module="tile.ptx").exit_code == 2
    assert emulate(folder, module="none.ptx").exit_code == 2
    assert blasdx("emulate").exit_code == 2


def test_the_entry_may_be_left_out_when_there_is_one(folder: Path) -> None:
    assert emulate(folder, changed("entry", None)).exit_code == 0


def test_types_that_numpy_does_not_know_travel_through_npy(tmp_path: Path) -> None:
    copy_kernel = (
        'extern "C" __global__ void copy(const unsigned short* x, unsigned short* y)'
        "{ y[threadIdx.x] = x[threadIdx.x]; }"
    )
    (tmp_path / "copy.ptx").write_text(ptx(copy_kernel))
    x = np.linspace(-2, 2, 32).astype(ml_dtypes.bfloat16)
    np.save(tmp_path / "x.npy", x)
    spec = {
        "grid": [1], "block": [32],
        "buffers": {
            "x": {"dtype": "bf16", "shape": [32], "init": {"kind": "npy", "path": "x.npy"}},
            "y": {"dtype": "bf16", "shape": [32], "bytes": 128},
        },
        "parameters": [{"kind": "pointer", "buffer": "x"}, {"kind": "pointer", "buffer": "y"}],
        "outputs": [{"buffer": "y", "path": "y.npy", "expected": "x.npy"}],
    }  # fmt: skip
    result = emulate(tmp_path, spec, module="copy.ptx")
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy").view(ml_dtypes.bfloat16), x)


def test_the_schema_is_printed_and_the_documented_document_is_valid() -> None:
    result = blasdx("emulate", "--schema")
    assert result.exit_code == 0
    assert set(json.loads(result.output)["properties"]) == set(LaunchSpec.model_fields)
    documents = re.findall(r"```json\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    specs = [LaunchSpec.model_validate_json(text) for text in documents]
    kinds = {p.kind for spec in specs for p in spec.parameters}
    assert kinds == {"pointer", "null", "scalar", "tensor_map", "bytes"}
    assert {b.init.kind for spec in specs for b in spec.buffers.values()} == {"ints", "normal", "fill", "npy"}
