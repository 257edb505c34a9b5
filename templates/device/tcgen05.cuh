// Whole warp. Writes the base address of `columns` tensor-memory columns to shared memory; blocks while they are taken.
__device__ __forceinline__ void tmem_alloc(u32 handle, u32 columns) {
  asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(handle), "r"(columns)
               : "memory");
}

__device__ __forceinline__ void tmem_relinquish_alloc_permit() {
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void tmem_dealloc(u32 tmem, u32 columns) {
  asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(tmem), "r"(columns) : "memory");
}

__device__ __forceinline__ void tcgen05_fence_before_thread_sync() {
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}

__device__ __forceinline__ void tcgen05_fence_after_thread_sync() {
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

// D[tmem] = A * B (+ D when `accumulate`) of 16-bit floats, asynchronously, issued by one thread.
__device__ __forceinline__ void tcgen05_mma_f16(u32 tmem, u64 a, u64 b, u32 instruction, bool accumulate) {
  asm volatile(
      "{\n\t"
      ".reg .pred p;\n\t"
      "setp.ne.b32 p, %4, 0;\n\t"
      "tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p;\n\t"
      "}" ::"r"(tmem),
      "l"(a), "l"(b), "r"(instruction), "r"(static_cast<u32>(accumulate))
      : "memory");
}

// The same of tf32.
__device__ __forceinline__ void tcgen05_mma_tf32(u32 tmem, u64 a, u64 b, u32 instruction, bool accumulate) {
  asm volatile(
      "{\n\t"
      ".reg .pred p;\n\t"
      "setp.ne.b32 p, %4, 0;\n\t"
      "tcgen05.mma.cta_group::1.kind::tf32 [%0], %1, %2, %3, p;\n\t"
      "}" ::"r"(tmem),
      "l"(a), "l"(b), "r"(instruction), "r"(static_cast<u32>(accumulate))
      : "memory");
}

// The same of 8-bit floats.
__device__ __forceinline__ void tcgen05_mma_f8f6f4(u32 tmem, u64 a, u64 b, u32 instruction, bool accumulate) {
  asm volatile(
      "{\n\t"
      ".reg .pred p;\n\t"
      "setp.ne.b32 p, %4, 0;\n\t"
      "tcgen05.mma.cta_group::1.kind::f8f6f4 [%0], %1, %2, %3, p;\n\t"
      "}" ::"r"(tmem),
      "l"(a), "l"(b), "r"(instruction), "r"(static_cast<u32>(accumulate))
      : "memory");
}

// The same of 8-bit integers.
__device__ __forceinline__ void tcgen05_mma_i8(u32 tmem, u64 a, u64 b, u32 instruction, bool accumulate) {
  asm volatile(
      "{\n\t"
      ".reg .pred p;\n\t"
      "setp.ne.b32 p, %4, 0;\n\t"
      "tcgen05.mma.cta_group::1.kind::i8 [%0], %1, %2, %3, p;\n\t"
      "}" ::"r"(tmem),
      "l"(a), "l"(b), "r"(instruction), "r"(static_cast<u32>(accumulate))
      : "memory");
}

// One arrival on `barrier` once every MMA this thread has issued is complete.
__device__ __forceinline__ void tcgen05_commit(u32 barrier) {
  asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier)
               : "memory");
}
