// Orders this warpgroup's earlier accesses to accumulator registers before its next MMAs.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Until all but the newest kPending groups of this warpgroup are complete.
template <u32 kPending>
__device__ __forceinline__ void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Pins an accumulator register in program order, so that the compiler moves no use of it in front of a wait.
__device__ __forceinline__ void pin_register(u32& value) { asm volatile("" : "+r"(value)::"memory"); }
