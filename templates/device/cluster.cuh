__device__ __forceinline__ u32 cluster_rank() {
  u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Barrier among all threads of all CTAs of the cluster; orders their shared memory.
__device__ __forceinline__ void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n\t"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

// Arrives on the barrier at the same place in another CTA. Without .release.cluster, which costs a fence of the whole
// GPU: such an arrival passes on that asynchronous reads are over, and no memory this thread has written.
__device__ __forceinline__ void mbarrier_arrive_remote(u32 barrier, u32 rank) {
  asm volatile(
      "{\n\t"
      ".reg .b32 remote;\n\t"
      "mapa.shared::cluster.u32 remote, %0, %1;\n\t"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n\t"
      "}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

// The address at the same place in the leader of this CTA's pair: shared addresses begin with the CTA's rank, whose lowest
// bit is 0 there.
__device__ __forceinline__ u32 pair_leaders(u32 address) { return address & ~(1u << 24); }
