// One parameter of each kind: a tensor map, a struct that holds a pointer and a number, a pointer, one that may be
// null, and a number. out = scale * tile of the map at (column, 0) + bias + add.
using uint32_t = unsigned;
using uint64_t = unsigned long long;

struct alignas(64) Map { char bytes[128]; };
struct Extra { const float* add; float scale; };

extern "C" __global__ void tile(const __grid_constant__ Map map, Extra extra, float* out, const float* bias, int column)
{
    __shared__ alignas(128) float box[8 * 32];
    __shared__ alignas(8) uint64_t full;
    uint32_t const bar = static_cast<uint32_t>(__cvta_generic_to_shared(&full));
    uint32_t const to = static_cast<uint32_t>(__cvta_generic_to_shared(box));
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 1024;" ::"r"(bar) : "memory");
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                     ::"r"(to), "l"(&map), "r"(column), "r"(0), "r"(bar) : "memory");
    }
#ifndef BREAK_WAIT
    asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra again; }" ::"r"(bar) : "memory");
#endif
    int const t = threadIdx.x;
    out[t] = extra.scale * box[t] + extra.add[t] + (bias ? bias[t] : 0.0f);
#ifdef BREAK_WAIT
    asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @!p bra again; }" ::"r"(bar) : "memory");
#endif
#ifdef BREAK_HANG
    asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 1; @!p bra again; }" ::"r"(bar) : "memory");
#endif
}
