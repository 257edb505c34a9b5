// Whole warp, in both CTAs of a pair. Writes the base address of `columns` tensor-memory columns to shared memory.
__device__ __forceinline__ void tmem_alloc_pair(u32 handle, u32 columns) {
  asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(handle), "r"(columns)
               : "memory");
}

__device__ __forceinline__ void tmem_relinquish_alloc_permit_pair() {
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void tmem_dealloc_pair(u32 tmem, u32 columns) {
  asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, %1;" ::"r"(tmem), "r"(columns) : "memory");
}

// One arrival on the barrier at the same place in every CTA of `mask` once every MMA this thread has issued is complete.
__device__ __forceinline__ void tcgen05_commit_multicast(u32 barrier, u32 mask) {
  asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(
                   barrier),
               "h"(static_cast<u16>(mask))
               : "memory");
}

__device__ __forceinline__ void tcgen05_commit_multicast_pair(u32 barrier, u32 mask) {
  asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(
                   barrier),
               "h"(static_cast<u16>(mask))
               : "memory");
}
