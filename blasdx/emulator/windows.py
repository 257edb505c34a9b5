"""Where the state spaces lie in the generic address space of the emulator.

Addresses are opaque to a program; these are chosen so that a stray one is recognised by its upper 32 bits.
"""

from __future__ import annotations

SHARED_BASE = 0x400  # first user byte of shared memory, measured on an H200

SHARED_WINDOW = 0x7C00_0000_0000
LOCAL_WINDOW = 0x7D00_0000_0000
PARAM_WINDOW = 0x7E00_0000_0000
GLOBAL_START = 0x7F00_0000_0000

# What cvta adds to an address of the space to make it generic.
GENERIC = {
    "global": 0,
    "const": 0,
    "shared": SHARED_WINDOW,
    "local": LOCAL_WINDOW,
    "param": PARAM_WINDOW,
}
