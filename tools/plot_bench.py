"""Draws what tools/bench.py measured: each shape's contestants as a share of cuBLAS's speed.

    python tools/plot_bench.py bench.json bench.svg

Needs matplotlib and no GPU.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

BLUE, GREY, ORANGE = "#0072b2", "#b8b8b8", "#d55e00"  # told apart by everyone, and in grey
PLATE = {"facecolor": "white", "edgecolor": "none", "pad": 1}
HEIGHT = 0.26
"""Of a bar, where a shape has a height of 1."""


def draw(measured: dict[str, Any]) -> Figure:
    """A row of bars a shape, cuBLAS at 1; every descriptor that was tried is a tick, the best one a bar."""
    results = measured["results"]
    figure = Figure(figsize=(8, 0.9 + 0.55 * len(results)), layout="constrained")
    axes = figure.subplots()
    for row, result in enumerate(results):
        ratios = [one["ratio"] for one in result["ours"]]
        best = max(result["ours"], key=lambda one: one["ratio"])
        axes.barh(row - HEIGHT / 2, best["ratio"], HEIGHT, color=BLUE, label="best descriptor" if not row else None)
        axes.plot(ratios, [row - HEIGHT / 2] * len(ratios), "|", color="black", markersize=5, alpha=0.6,
                  label="each descriptor" if not row else None)  # fmt: skip
        axes.annotate(f"{best['ratio']:.2f}, {best['tflops']} TFLOP/s", (best["ratio"], row - HEIGHT / 2), (5, 0),
                      textcoords="offset points", va="center", fontsize=8, bbox=PLATE)  # fmt: skip
        if result["cupy"]:
            axes.barh(row + HEIGHT / 2, result["cupy"]["ratio"], HEIGHT, color=GREY, label=None if row else "CuPy")
    axes.axvline(1, color=ORANGE, linewidth=1.2, label="cuBLAS")
    names = [" x ".join(map(str, result["shape"])) for result in results]
    axes.set_yticks(
        range(len(results)), [f"{name}\n{one['cublas']} TFLOP/s" for name, one in zip(names, results, strict=True)]
    )
    axes.tick_params(axis="y", labelsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.3)
    axes.set_xlabel("speed, cuBLAS = 1 (its TFLOP/s under each shape)")
    axes.set_title(f"bf16 x bf16 -> bf16 on {measured['device']}", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("measured", type=Path, help="the JSON that tools/bench.py wrote")
    parser.add_argument("picture", type=Path, help="SVG, PNG or PDF")
    options = parser.parse_args()
    mpl.rcParams["svg.hashsalt"] = "blasdx"  # the same figures, the same file
    mpl.rcParams["svg.fonttype"] = "none"  # text stays text
    draw(json.loads(options.measured.read_text())).savefig(options.picture, metadata={"Date": None}, dpi=150)


if __name__ == "__main__":
    main()
