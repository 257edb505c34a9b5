"""What tools/sass_report.py finds in machine code: the loop that multiplies, and the way through an epilogue."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from sass_flow import Code, Epilogue, MmaLoop, epilogue, mma_loop
from sass_report import DEFAULT, comparable, foreign, ours, table

import blasdx as dx
from blasdx.cli.text import descriptor_from_text

DATA = os.environ.get("BLASDX_REFERENCE_DATA")
NEEDS_DATA = pytest.mark.skipif(
    not DATA, reason="BLASDX_REFERENCE_DATA is not set: it names kernels of other compilers"
)


def code(*lines: str) -> Code:
    """Disassembly of the lines; those that end in a colon are labels."""
    text = "\n".join(line if line.endswith(":") else f"        /*{i:04x}*/    {line} ;" for i, line in enumerate(lines))
    return Code.parse(text)


def test_a_loop_is_the_smallest_with_an_mma_and_its_repeated_waits_stand_elsewhere() -> None:
    found = mma_loop(
        code(
            "MOV R1, c[0x0][0x37c]",
            ".L_x_0:",  # a persistent loop around it
            "MOV R2, RZ",
            ".L_x_1:",
            "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R3], R4",
            "@!P0 BRA `(.L_x_3)",
            ".L_x_2:",
            "UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR8], tmem[UR10], idesc[UR11], UP0",
            "UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR8], tmem[UR10], idesc[UR11], UPT",
            "@P1 BRA `(.L_x_1)",
            "BRA.U UP1, `(.L_x_0)",
            "EXIT",
            ".L_x_3:",
            "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R3], R4",
            "@!P0 BRA `(.L_x_3)",
            "BRA `(.L_x_2)",
            ".L_x_4:",
            "BRA `(.L_x_4)",
            "NOP",
        )
    )
    assert found == MmaLoop(mmas=2, inline=5, elsewhere=3)


def test_without_a_loop_there_is_none() -> None:
    straight = code("UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR8], tmem[UR10], idesc[UR11], UP0", "EXIT")
    assert mma_loop(straight) is None
    assert epilogue(straight, 4) is None


def test_a_way_that_does_not_write_every_element_is_none() -> None:
    lines = (
        "@P0 BRA `(.L_x_2)",
        "LDTM.x4 R4, tmem[UR4]",
        "@P1 BRA `(.L_x_1)",  # outside of the matrix: writes nothing
        "@!P2 STG.E.128 desc[UR8][R2.64], R4",
        "@!P2 BRA `(.L_x_1)",  # written as one vector
        "STG.E desc[UR8][R2.64], R4",
        "STG.E desc[UR8][R2.64+0x4], R5",
        "STG.E desc[UR8][R2.64+0x8], R6",
        "STG.E desc[UR8][R2.64+0xc], R7",
        ".L_x_1:",
        "NOP",
        ".L_x_2:",
        "EXIT",
    )
    assert epilogue(code(*lines), 4) == Epilogue(executed=3, elements=4)
    assert epilogue(code(*lines), 8) == Epilogue(executed=8, elements=4)  # it takes all stores to write as much
    assert epilogue(code(*lines), 16) is None


def test_a_round_over_chunks_counts_wholly_and_a_bulk_store_ends_it() -> None:
    found = epilogue(
        code(
            "MOV R1, RZ",
            ".L_x_1:",
            "IADD3 R1, R1, 0x1, RZ",
            "LDTM.x2 R4, tmem[UR4]",
            "STS.64 [R2], R4",
            "UTMASTG.3D [UR6], [UR8]",
            "@P0 BRA `(.L_x_1)",
            "EXIT",
        ),
        4,
    )
    assert found == Epilogue(executed=5, elements=2)


def test_a_way_does_not_go_round_the_tma_store_that_one_lane_issues() -> None:
    found = epilogue(
        code(
            "LDTM.x2 R4, tmem[UR4]",
            "STS.64 [R2], R4",
            "@P0 BRA `(.L_x_1)",
            "R2UR UR6, R3",
            "UTMASTG.3D [UR6], [UR8]",
            "UTMASTG.3D [UR6], [UR8]",
            ".L_x_1:",
            "EXIT",
        ),
        4,
    )
    assert found == Epilogue(executed=6, elements=2)


@pytest.mark.parametrize(("opcode", "elements"), [("LDTM", 1), ("LDTM.x32", 32), ("LDTM.16dp256bit.x8", 32),
                                                  ("LDTM.16dp32bit_t0_t15.x32", 32), ("LDTM.16dp32bit_t16_t31.x32", 0),
                                                  ("LDTM.x64.PACK16BIT", 128)])  # fmt: skip
def test_elements_of_a_load(opcode: str, elements: int) -> None:
    assert code(f"{opcode} R4, tmem[UR4]").at[0].elements == elements


ONE_CTA = [case for case in DEFAULT if "BlocksPerCluster" not in case[0]]


@pytest.mark.parametrize(("text", "output"), ONE_CTA)
def test_our_loop_holds_the_planned_mmas_and_little_else(text: str, output: str) -> None:
    row, kernel = ours(descriptor_from_text(text), output, None)
    assert row.mmas == kernel.source.plan.mma.count
    assert row.per_4_mmas is not None
    assert row.per_4_mmas <= 34  # CUTLASS 44, Triton 50 (ptxas 13.0)
    assert row.instructions <= 900
    assert row.spills == 0
    assert row.registers == kernel.resources.registers
    assert row.epilogue is not None
    # Triton's: of its persistent kernel, which stores with TMA, and of those that store 32 bits from registers.
    assert row.epilogue <= (1.16 if kernel.source.plan.bulk_stores else 4.1)
    assert row.mbarriers == sum(barrier.stages for barrier in kernel.source.plan.barriers)
    assert str(row.instructions) in table([row])


def test_a_hopper_loop_is_found() -> None:
    text = DEFAULT[0][0].replace("SM(1000", "SM(900")
    row, kernel = ours(descriptor_from_text(text), "bf16", None)
    assert row.mmas == kernel.source.plan.mma.count


@NEEDS_DATA
@pytest.mark.parametrize(
    ("name", "mmas", "epilogue_is_found"),
    [("cutlass_g01_f16_tn_1sm", 4, True), ("triton_tma_f16_persist_ws", 4, True), ("gluon_f16_1cta", 4, True),
     ("triton_ptr_f16_bm64", 4, True), ("cute_tut02_tma", 16, True)],
)  # fmt: skip
def test_loops_of_others(name: str, mmas: int, epilogue_is_found: bool) -> None:
    assert DATA is not None
    row = foreign(Path(DATA) / "kernels" / f"{name}.ptx", None)
    assert row.mmas == mmas
    assert row.loop is not None
    assert 8 <= row.loop / mmas <= 60  # instructions for each MMA
    assert (row.epilogue is not None) == epilogue_is_found


@NEEDS_DATA
def test_a_loop_of_another_compiler_has_the_length_counted_by_hand() -> None:
    assert DATA is not None
    row = foreign(Path(DATA) / "kernels" / "cutlass_g01_f16_tn_1sm.ptx", None)
    assert row.loop == 44  # counted by hand


@NEEDS_DATA
def test_kernels_of_the_same_tile_are_compared() -> None:
    kernel = dx.compile(dx.render(dx.suggest_pipeline(descriptor_from_text(DEFAULT[2][0]))))
    names = {path.stem for path in comparable(kernel)}
    assert {"cutlass_g01_f16_tn_1sm", "triton_tma_f16_persist_ws", "tilelang_f16_tn"} <= names
    assert not names & {"gluon_f16_2cta", "triton_ptr_f16_bm64", "triton_tma_e4m3_tn", "cute_tut02_tma"}
