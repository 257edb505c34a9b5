"""Epilogues: a small typed language for what a kernel does with its sums before it stores them.

An expression is parsed, never evaluated: `Epilogue` is its value, `EpilogueContext` the CUDA C++ that it becomes, and
`reference` what it means, in NumPy.
"""

from __future__ import annotations

from blasdx.epilogue.value import DEFAULT, OUTPUTS, ArrayOperand, Epilogue

__all__ = ["DEFAULT", "OUTPUTS", "ArrayOperand", "Epilogue"]
