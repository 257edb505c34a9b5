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

// Two sums of 16-bit floats.
__device__ __forceinline__ u32 add_f16_pairs(u32 a, u32 b) {
  u32 sum;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
  return sum;
}
