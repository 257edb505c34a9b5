__device__ __forceinline__ void tma_prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Copies one box to shared memory; the box's full bytes are counted on `barrier`, zero fill included.
__device__ __forceinline__ void tma_load_2d(u32 destination, const TensorMap& map, u32 inner, u32 outer, u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          destination),
      "l"(&map), "r"(inner), "r"(outer), "r"(barrier)
      : "memory");
}
