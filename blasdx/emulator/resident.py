"""CTAs and clusters while they are resident: shared memory, tensor memory, barriers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from blasdx.emulator.errors import EmulationError
from blasdx.emulator.lanes import Value
from blasdx.emulator.mbarrier import Barrier
from blasdx.emulator.memory import Region
from blasdx.emulator.tensor_memory import Allocator
from blasdx.emulator.warp import Path, Warp, special_registers
from blasdx.emulator.windows import SHARED_BASE

if TYPE_CHECKING:
    from blasdx.emulator.machine import Machine

POISON = 0xFF  # 0xFFFF.. is NaN in every float format


class NamedBarrier:
    """bar.sync and its relatives: one of the 16 barriers of a CTA."""

    def __init__(self) -> None:
        self.generation = 0
        self.arrived = 0
        self.here: dict[int, None] = {}  # warps of which lanes have arrived
        self.since = 0  # when the first of them did
        self.expected: int | None = None
        self.waiting: list[Path] = []
        self.votes: list[tuple[int, int]] = []  # (lanes, lanes with predicate true), for bar.red
        self.result: dict[int, tuple[int, int]] = {}


class Cta:
    """One resident CTA.

    Attributes
    ----------
    number : int
        Unique in the launch.
    rank : int
        In its cluster.
    shared16 : NDArray
        Shared memory in units of 16 bytes, unit 0 at offset 0.
    """

    def __init__(
        self,
        machine: Machine,
        cluster: Cluster,
        number: int,
        rank: int,
        block: tuple[int, int, int],
        special: dict[str, Value],
        shared_bytes: int,
    ) -> None:
        self.machine = machine
        self.cluster = cluster
        self.number = number
        self.rank = rank
        self.block = block
        self.special = special
        self.name = f"({special['ctaid_x']},{special['ctaid_y']},{special['ctaid_z']})"
        size = SHARED_BASE + shared_bytes
        data = np.full(-(-size // 64) * 64 + 64, POISON, np.uint8)
        origin = rank << 24
        self.shared = Region(f"shared memory of CTA {self.name}", data, origin, origin + SHARED_BASE, origin + size)
        self.shared16: Any = data.view(np.complex128)
        self.barriers: dict[int, Barrier] = {}
        self.named: dict[int, NamedBarrier] = {}
        self.allocator = Allocator()
        self.tensor_memory = np.full((128, 512), 0xFFFFFFFF, np.uint32)
        self.ever_allocated = np.zeros(512, np.bool_)
        self.cta_group = 0
        self.allocating: list[Path] = []
        self.warpgroups: dict[int, Any] = {}  # wgmma.Warpgroup
        self.free_registers = 0
        self.claiming: list[Path] = []
        threads = block[0] * block[1] * block[2]
        self.warps: list[Warp] = []
        for index in range(-(-threads // 32)):
            mask, registers = special_registers(self, index, threads)
            self.warps.append(Warp(self, index, mask, registers))
        self.done = False

    @property
    def alive(self) -> int:
        """Threads that have not exited."""
        return sum(w.alive.bit_count() for w in self.warps)

    def peer(self, rank: int) -> Cta:
        """The CTA of a cluster rank.

        Raises
        ------
        EmulationError
            When the cluster has no such CTA, or it has exited.
        """
        ctas = self.cluster.ctas
        if rank >= len(ctas):
            raise EmulationError(f"shared address of cluster rank {rank}, the cluster has {len(ctas)} CTA(s)")
        cta = ctas[rank]
        if cta.done:
            raise EmulationError(f"CTA {cta.name} (cluster rank {rank}) has exited, but is still addressed")
        return cta

    def region(self, address: int) -> Region:
        """The shared memory that a shared address lies in."""
        rank = address >> 24
        return self.shared if rank == self.rank else self.peer(rank).shared

    def barrier(self, offset: int) -> Barrier:
        """The mbarrier at an offset.

        Raises
        ------
        EmulationError
            When none was initialised there.
        """
        barrier = self.barriers.get(offset)
        if barrier is None:
            if offset % 8:
                raise EmulationError(f"mbarrier address {offset:#x} is not 8-byte aligned")
            raise EmulationError(f"no mbarrier was initialised at {offset:#x} in shared memory of CTA {self.name}")
        return barrier

    def lanes_left(self) -> None:
        """Some lanes have exited: barriers may be complete without them."""
        for number in list(self.named):
            self.machine.check_named(self, number)
        self.machine.check_cluster(self.cluster)
        if not self.done and not any(w.alive for w in self.warps):
            self.machine.cta_exits(self)


class Cluster:
    """Co-resident CTAs."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.ctas: list[Cta] = []
        self.phase = 0
        self.arrived = 0
        self.waiting: list[Path] = []

    @property
    def alive(self) -> int:
        """Threads of all CTAs that have not exited."""
        return sum(cta.alive for cta in self.ctas)
