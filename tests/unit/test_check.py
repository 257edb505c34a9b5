"""check(): its report, its refusal, and what they look like in a terminal."""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
import pytest

import blasdx
from blasdx.descriptor import Descriptor
from blasdx.errors import BlasdxError, GateError, OperandError
from blasdx.operators import (
    SM,
    Alignment,
    Block,
    BlockDim,
    LeadingDimension,
    Precision,
    Size,
    Type,
    WithPipeline,
    arch_specific,
)
from blasdx.paths import OperandSpec, PathReport, check
from blasdx.paths.utcmma.limits import CARD
from tests.unit.pasting import pasted

HOPPER_HABIT = CARD.with_(Size(192, 256, 64), BlockDim(256))

REFUSAL = """\
Size<192,256,64> bf16 on SM 1000 lands on supermma: 2 of 11 tcgen05 gates missed

  block-dim       BlockDim(256)                         needs BlockDim(128)
                  On SM 1000 these are the 128 epilogue threads; 256 is the Hopper habit.
                  fix: BlockDim(128)
  tensor-memory   Size(192, 256, 64), f32 accumulator   needs at most 512 columns
                  192 is not a multiple of 128: 192 / 64 = 3 blocks x 256 columns = 768.
                  fix: Size(192, 168, 64) or Size(256, 256, 64)

  together: .with_(Size(256, 256, 64), BlockDim(128))"""

REPORT = """\
supermma   Size<192,256,64> bf16 on SM 1000

  utcmma: 2 of 11 tcgen05 gates missed
    met     pipeline          WithPipeline()                        needs WithPipeline()
    met     input-streaming   EnableInputStreaming()                needs EnableInputStreaming()
    met     sm                SM(1000, arch_specific)               needs arch_specific SM 1000, 1030, 1070 or 1100
    met     type              Type(real)                            needs Type(real)
    met     precision         Precision(bf16, bf16, f32)            needs a combination that tcgen05 has
    MISSED  block-dim         BlockDim(256)                         needs BlockDim(128)
                              On SM 1000 these are the 128 epilogue threads; 256 is the Hopper habit.
                              fix: BlockDim(128)
    met     alignment         Alignment(16, 16, 16)                 needs 16 B or more for A, B and C
    met     size-m            Size(192, 256, 64)                    needs M 64, 128, 192 or 256
    met     size-n            Size(192, 256, 64)                    needs N a multiple of 8, at most 256
    met     size-k            Size(192, 256, 64)                    needs K a multiple of 16, at most 256
    MISSED  tensor-memory     Size(192, 256, 64), f32 accumulator   needs at most 512 columns
                              192 is not a multiple of 128: 192 / 64 = 3 blocks x 256 columns = 768.
                              fix: Size(192, 168, 64) or Size(256, 256, 64)

  wgmma: wgmma exists on SM 900 only; SM 1000 has none.

  supermma: the mma.sync gate met
    met     mma-sync   Precision(bf16, bf16, f32)   needs an mma.sync for these types
                       bf16 -> f32 has one from SM 800 on.

  unsupported so far: supermma has no kernel"""


def test_the_refusal_reads_like_this() -> None:
    with pytest.raises(GateError) as caught:
        check(HOPPER_HABIT, require="utcmma")
    assert str(caught.value) == REFUSAL


def test_the_report_reads_like_this() -> None:
    assert str(check(HOPPER_HABIT)) == REPORT


def test_what_is_printed_together_is_the_joint_fix() -> None:
    with pytest.raises(GateError) as caught:
        check(HOPPER_HABIT, require="utcmma")
    change = re.search(r"together: \.with_\((.*)\)$", str(caught.value))
    assert change
    fixed = HOPPER_HABIT.with_(*pasted(f"[{change[1]}]"))
    assert check(fixed, require="utcmma").path == "utcmma"
    assert fixed == caught.value.report.fixed("utcmma")


def test_a_refusal_lists_every_miss_and_carries_them() -> None:
    broken = Size(100, 300, 20) + Precision("f64") + Type("complex") + SM(900)
    with pytest.raises(GateError, match="9 of 11 tcgen05 gates missed") as caught:
        check(broken, require="utcmma")
    error = caught.value
    assert error.required == "utcmma"
    assert error.misses == error.report.misses("utcmma")
    assert [miss.gate for miss in error.misses] == re.findall(r"^  (\S+) {3,}\S", str(error), flags=re.MULTILINE)
    assert isinstance(error, ValueError)
    assert isinstance(error, BlasdxError)
    assert "together: report.fixed('utcmma', allow={'precision', 'type', 'sm'})" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.misses, again.report) == (str(error), error.misses, error.report)


def test_rules_of_every_path_are_counted_apart() -> None:
    with pytest.raises(GateError, match=r"on no SM lands on unsupported: 1 rule of every path missed, 1 of 11 tcgen05"):
        check(CARD.without(SM), require="utcmma")
    with pytest.raises(GateError, match=r"lands on unsupported: 1 rule of every path missed\n"):
        check(CARD.with_(LeadingDimension(1, 64, 256)), require="utcmma")


def test_a_path_as_good_or_better_is_no_refusal() -> None:
    assert check(CARD, require="supermma").path == "utcmma"
    assert check(HOPPER_HABIT, require="supermma").path == "supermma"
    with pytest.raises(GateError, match=r"lands on fma: 1 of 1 mma\.sync gate missed"):
        check(CARD.with_(Precision("f32")), require="supermma")
    with pytest.raises(ValueError, match="require takes utcmma, wgmma, supermma, fma, not 'tcgen05'"):
        check(CARD, require="tcgen05")  # type: ignore[arg-type]


def test_no_line_is_wider_than_a_terminal() -> None:
    broken = Size(100, 300, 20) + Precision("f16", "bf16", "f16") + SM(1000)
    for descriptor in (CARD, HOPPER_HABIT, broken, broken + LeadingDimension(1, 1, 1), Descriptor()):
        for line in str(check(descriptor)).splitlines():
            assert len(line) <= 120, line


def test_columns_are_aligned() -> None:
    lines = str(check(Size(100, 300, 20) + SM(1000))).splitlines()
    places: dict[str, set[int]] = {}
    section = ""
    for line in lines:
        section = line if re.match(r"  \S", line) else section
        if re.match(r"    (met|MISSED) ", line):
            places.setdefault(section, set()).add(line.index(" needs "))
    assert len(places) == 2
    assert all(len(columns) == 1 for columns in places.values()), places


def test_a_report_is_a_value() -> None:
    a = np.zeros((256, 64), np.float16)
    report = check(HOPPER_HABIT, a, OperandSpec((64, 512), (2, 128), "bf16"))
    assert PathReport.model_validate_json(report.model_dump_json()) == report
    assert hash(report) == hash(check(HOPPER_HABIT, a, OperandSpec((64, 512), (2, 128), "bf16")))


def test_an_operator_is_a_descriptor_too() -> None:
    report = check(Size(64, 8, 16))
    assert report.descriptor == Descriptor(Size(64, 8, 16))
    assert report.path == "unsupported"


# ---- fixed


def test_fixed_changes_everything_together() -> None:
    broken = Size(100, 300, 20) + Precision("bf16", "bf16", "f32") + BlockDim(512) + Alignment(2, 32, 4)
    broken = broken + SM(1000, arch_specific) + LeadingDimension(20, 20, 100)
    fixed = check(broken).fixed("utcmma")
    assert fixed is not None
    assert check(fixed).path == "utcmma"
    assert fixed == (
        Size(128, 256, 16)
        + Precision("bf16", "bf16", "f32")
        + LeadingDimension(20, 20, 128)
        + BlockDim(128)
        + Alignment(16, 32, 16)
        + WithPipeline()
        + blasdx.EnableInputStreaming()
        + SM(1000, arch_specific)
    )


def test_fixed_turns_tf32_over_and_leaves_c() -> None:
    tf32 = CARD.with_(Precision("tf32", "tf32", "f32"), blasdx.Arrangement("col", "row", "col"))
    assert check(tf32).fixed() == tf32.with_(blasdx.Arrangement("row", "col", "col"))


def test_fixed_is_the_descriptor_itself_where_it_lands() -> None:
    assert check(CARD).fixed("utcmma") == CARD
    hopper = CARD.with_(SM(900, arch_specific))
    assert check(hopper).fixed("wgmma") == hopper


def test_fixed_touches_precision_type_and_sm_only_when_allowed() -> None:
    cases: list[tuple[Descriptor, set[Any], Descriptor]] = [
        (CARD.with_(Precision("f32")), {"precision"}, CARD.with_(Precision("tf32", "tf32", "f32"))),
        (CARD.with_(Precision("f16", "bf16", "f32")), {"precision"}, CARD.with_(Precision("f16", "f16", "f32"))),
        (CARD.with_(Type("complex")), {"type"}, CARD),
        (CARD.with_(SM(1000)), {"sm"}, CARD),
        (CARD.with_(SM(1210)), {"sm"}, CARD.with_(SM(1100, arch_specific))),
        (CARD.without(SM), {"sm"}, CARD),
    ]
    for broken, allow, expected in cases:
        assert check(broken).fixed("utcmma") is None
        assert check(broken).fixed("utcmma", allow={"precision", "type", "sm"} - allow) is None
        assert check(broken).fixed("utcmma", allow=allow) == expected


def test_integers_on_1030_leave_either_way() -> None:
    integers = CARD.with_(Precision("s8", "s8", "s32"), SM(1030, arch_specific))
    (miss,) = check(integers).misses("utcmma")
    assert miss.guarded == ("precision", "sm")
    assert check(integers).fixed() is None
    assert check(integers).fixed(allow={"sm"}) == integers.with_(SM(1000, arch_specific))
    by_types = check(integers).fixed(allow={"precision"})
    assert by_types is not None
    assert by_types.sm == integers.sm
    assert check(by_types).path == "utcmma"


def test_a_descriptor_without_size_gets_the_cards_tile() -> None:
    assert check(CARD.without(Size)).fixed() == CARD
    fp8 = CARD.without(Size).with_(Precision("e4m3", "e4m3", "f32"))
    assert check(fp8).fixed() == fp8.with_(Size(128, 256, 128))


def test_fixed_on_hopper_keeps_its_threads() -> None:
    hopper = CARD.with_(SM(900, arch_specific), BlockDim(512), Size(100, 300, 1000))
    assert check(hopper).fixed("wgmma") == hopper.with_(Size(128, 304, 1008))
    odd = hopper.with_(BlockDim(384))
    fixed = check(odd).fixed("wgmma")
    assert fixed is not None
    assert fixed.block_threads == 512


def test_fixed_refuses_what_it_cannot_mean() -> None:
    report = check(HOPPER_HABIT)
    with pytest.raises(ValueError, match="there is no path 'tcgen05'"):
        report.fixed("tcgen05")
    with pytest.raises(ValueError, match=r"fixed\(\) climbs to utcmma or wgmma, not to fma"):
        report.fixed("fma")
    with pytest.raises(ValueError, match="allow takes precision, type, sm, not 'size'"):
        report.fixed("utcmma", allow={"size"})  # type: ignore[arg-type]
    assert report.fixed("supermma") == HOPPER_HABIT


# ---- operands


class Tensor:
    """A PyTorch-like tensor: strides are a method, and count elements."""

    shape = (6, 4)
    dtype = "torch.bfloat16"

    def stride(self) -> tuple[int, ...]:
        return (8, 1)

    def data_ptr(self) -> int:
        return 4096


class Device:
    """Nothing but the CUDA array interface."""

    def __init__(self, strides: tuple[int, ...] | None) -> None:
        self.__cuda_array_interface__ = {
            "shape": (6, 4),
            "typestr": "<f2",
            "strides": strides,
            "data": (256, False),
            "version": 3,
        }


class Exported:
    """Nothing but DLPack."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_operands_are_read_by_what_they_offer() -> None:
    assert OperandSpec.of(Tensor()) == OperandSpec((6, 4), (16, 2), "bf16", 4096)
    assert OperandSpec.of(Device(None)) == OperandSpec((6, 4), (8, 2), "f16", 256)
    assert OperandSpec.of(Device((64, 2))).strides == (64, 2)
    array = np.zeros((6, 4), np.int8)[::2, 1:]
    spec = OperandSpec.of(Exported(array))
    assert (spec.shape, spec.strides, spec.dtype.name) == ((3, 3), (8, 1), "s8")  # type: ignore[union-attr]
    assert spec.address == array.__array_interface__["data"][0]
    assert OperandSpec.of(spec) is spec
    assert OperandSpec((2, 3, 5), None, "f32").strides == (60, 20, 4)
    assert OperandSpec((), None, "f32").strides == ()


def test_what_is_no_array_is_refused_by_name() -> None:
    with pytest.raises(OperandError, match="b is no array but a list: it has neither shape and dtype") as caught:
        check(CARD, None, [1, 2])
    assert caught.value.operand == "b"
    with pytest.raises(ValueError, match=r"2 extents .* and 1 strides"):
        OperandSpec((2, 3), (4,), "f32")


def test_half_built_sums_are_checked_whatever_they_have() -> None:
    for operator in CARD.operators:
        assert check(operator).path == "unsupported"
    assert check(Block() + Size(1, 1, 1) + SM(900)).path == "fma"


def test_a_missed_gate_without_a_fix_says_what_it_takes() -> None:
    half_built = CARD.without(blasdx.Size).with_(blasdx.BlockDim(1024))
    assert [finding.gate for finding in blasdx.check(half_built).gates if not finding.met and not finding.hint] == []
