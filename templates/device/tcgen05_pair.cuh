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

// D[tmem] = A * B (+ D when `accumulate`) of 16-bit floats in both CTAs of a pair, asynchronously, issued by one thread of one.
__device__ __forceinline__ void tcgen05_mma_f16_pair(u32 tmem, u64 a, u64 b, u32 instruction, bool accumulate) {
  asm volatile(
      "{\n\t"
      ".reg .pred p;\n\t"
      "setp.ne.b32 p, %4, 0;\n\t"
      "tcgen05.mma.cta_group::2.kind::f16 [%0], %1, %2, %3, p;\n\t"
      "}" ::"r"(tmem),
      "l"(a), "l"(b), "r"(instruction), "r"(static_cast<u32>(accumulate))
      : "memory");
}

// The same of tf32.
__device__ __forceinline__ void tcgen05_mma_tf32_pair(u32 tmem, u64 a, u64 b, u32 instruction, bool accumulate) {
  asm volatile(
      "{\n\t"
      ".reg .pred p;\n\t"
      "setp.ne.b32 p, %4, 0;\n\t"
      "tcgen05.mma.cta_group::2.kind::tf32 [%0], %1, %2, %3, p;\n\t"
      "}" ::"r"(tmem),
      "l"(a), "l"(b), "r"(instruction), "r"(static_cast<u32>(accumulate))
      : "memory");
}

// The same of 8-bit floats.
__device__ __forceinline__ void tcgen05_mma_f8f6f4_pair(u32 tmem, u64 a, u64 b, u32 instruction, bool accumulate) {
  asm volatile(
      "{\n\t"
      ".reg .pred p;\n\t"
      "setp.ne.b32 p, %4, 0;\n\t"
      "tcgen05.mma.cta_group::2.kind::f8f6f4 [%0], %1, %2, %3, p;\n\t"
      "}" ::"r"(tmem),
      "l"(a), "l"(b), "r"(instruction), "r"(static_cast<u32>(accumulate))
      : "memory");
}

// The same of 8-bit integers.
__device__ __forceinline__ void tcgen05_mma_i8_pair(u32 tmem, u64 a, u64 b, u32 instruction, bool accumulate) {
  asm volatile(
      "{\n\t"
      ".reg .pred p;\n\t"
      "setp.ne.b32 p, %4, 0;\n\t"
      "tcgen05.mma.cta_group::2.kind::i8 [%0], %1, %2, %3, p;\n\t"
      "}" ::"r"(tmem),
      "l"(a), "l"(b), "r"(instruction), "r"(static_cast<u32>(accumulate))
      : "memory");
}
