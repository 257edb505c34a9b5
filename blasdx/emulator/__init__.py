"""A PTX machine in Python: runs the kernels that compilers emit for sm_100a without a GPU.

It decodes descriptors, tensor maps and barriers from their bits, delays every asynchronous operation as long as the
rules allow, and reports what is not ordered. It shares no code with the generator of this project.

>>> from blasdx.emulator import GlobalMemory, Module
>>> memory = GlobalMemory()
>>> function = Module.from_ptx(text).get_function("entry")             # doctest: +SKIP
>>> result = function.launch(grid=(2, 2, 1), block=(192, 1, 1), memory=memory, args=[...])   # doctest: +SKIP
"""

from blasdx.emulator.errors import (
    DeadlockError,
    EmulationError,
    HazardError,
    LivelockError,
    UnsupportedInstruction,
)
from blasdx.emulator.hazards import Hazard
from blasdx.emulator.memory import Buffer, GlobalMemory
from blasdx.emulator.module import Function, LaunchResult, Module, check_options
from blasdx.emulator.names import Names
from blasdx.emulator.tensormap import TensorMap
from blasdx.emulator.trace import Stats, TraceEvent

__all__ = [
    "Buffer",
    "DeadlockError",
    "EmulationError",
    "Function",
    "GlobalMemory",
    "Hazard",
    "HazardError",
    "LaunchResult",
    "LivelockError",
    "Module",
    "Names",
    "Stats",
    "TensorMap",
    "TraceEvent",
    "UnsupportedInstruction",
    "check_options",
]
