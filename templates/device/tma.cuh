__device__ __forceinline__ void tma_prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Copies one box to shared memory; the box's full bytes are counted on `barrier`, zero fill included.
__device__ __forceinline__ void tma_load_3d(u32 destination, const TensorMap& map, u32 inner, u32 outer, u32 batch,
                                            u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(
          destination),
      "l"(&map), "r"(inner), "r"(outer), "r"(batch), "r"(barrier)
      : "memory");
}

// The same into every CTA of `mask` at once: data and count arrive at the same offsets in each.
__device__ __forceinline__ void tma_load_multicast_3d(u32 destination, const TensorMap& map, u32 inner, u32 outer,
                                                      u32 batch, u32 barrier, u32 mask) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(destination),
      "l"(&map), "r"(inner), "r"(outer), "r"(batch), "r"(barrier), "h"(static_cast<u16>(mask))
      : "memory");
}

// The two for a CTA of a pair: `barrier` may be the other one's. Multicast, the count of each CTA goes to the member of its
// pair that holds the same place in it as the one whose barrier is named.
__device__ __forceinline__ void tma_load_pair_3d(u32 destination, const TensorMap& map, u32 inner, u32 outer, u32 batch,
                                                 u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.cta_group::2.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(destination),
      "l"(&map), "r"(inner), "r"(outer), "r"(batch), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void tma_load_multicast_pair_3d(u32 destination, const TensorMap& map, u32 inner, u32 outer,
                                                           u32 batch, u32 barrier, u32 mask) {
  asm volatile(
      "cp.async.bulk.tensor.3d.cta_group::2.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(destination),
      "l"(&map), "r"(inner), "r"(outer), "r"(batch), "r"(barrier), "h"(static_cast<u16>(mask))
      : "memory");
}

// Copies one box from shared memory, whose writers have fenced; what lies outside the tensor is not written.
__device__ __forceinline__ void tma_store_3d(const TensorMap& map, u32 inner, u32 outer, u32 batch, u32 source) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(&map),
               "r"(inner), "r"(outer), "r"(batch), "r"(source)
               : "memory");
}

// The same by the lane of a converged warp that `issues`, without a branch.
__device__ __forceinline__ void tma_store_3d_if(bool issues, const TensorMap& map, u32 inner, u32 outer, u32 batch,
                                                u32 source) {
  asm volatile(
      "{\n\t"
      ".reg .pred p;\n\t"
      "setp.ne.b32 p, %5, 0;\n\t"
      "@p cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];\n\t"
      "}" ::"l"(&map),
      "r"(inner), "r"(outer), "r"(batch), "r"(source), "r"(static_cast<u32>(issues))
      : "memory");
}

// Makes a group of this thread's stores since the last one.
__device__ __forceinline__ void bulk_commit_group() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Until all but the newest kPending groups of this thread have read their sources.
template <u32 kPending>
__device__ __forceinline__ void bulk_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// Until all but the newest kPending groups of this thread are complete.
template <u32 kPending>
__device__ __forceinline__ void bulk_wait_group() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}
