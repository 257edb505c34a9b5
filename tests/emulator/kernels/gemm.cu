// C[m, n] = sum_k A[m, k] B[n, k], both operands K-major, f32 accumulation. Persistent over tiles, warp-specialised:
// warps 0-3 epilogue, warp 4 MMA, warp 5 TMA. BREAK_* leave out or spoil one step each, for tests of what is noticed.

#ifndef TILE_N
#define TILE_N 256
#endif
#ifndef STAGES
#define STAGES 3
#endif
#ifndef A_TYPE  // 0 f16, 1 bf16
#define A_TYPE 1
#endif
constexpr int TILE_M = 128, TILE_K = 64, ACCUMULATORS = TILE_N <= 256 ? 2 : 1;
constexpr unsigned A_BYTES = TILE_M * TILE_K * 2, B_BYTES = TILE_N * TILE_K * 2, STAGE = A_BYTES + B_BYTES;
constexpr unsigned IDESC = (1u << 4) | (A_TYPE << 7) | (A_TYPE << 10) | ((TILE_N >> 3) << 17) | ((TILE_M >> 4) << 24);

struct alignas(64) Map { char bytes[128]; };
using u32 = unsigned;
using u64 = unsigned long long;

__device__ u32 shared(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ void init(u32 bar, u32 n) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(n) : "memory"); }
__device__ void wait(u32 bar, u32 parity) {
  asm volatile("{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra again;\n}"
               ::"r"(bar), "r"(parity) : "memory");
}
__device__ void expect(u32 bar, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
__device__ void arrive(u32 bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory"); }
__device__ void load(u32 dst, const Map* map, int x, int y, u32 bar) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
               ::"r"(dst), "l"(map), "r"(x), "r"(y), "r"(bar) : "memory");
}
__device__ void commit(u32 bar) {
  asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(bar) : "memory");
}
__device__ void mma(u32 d, u64 a, u64 b, bool accumulate) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %4, 0;\ntcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p;\n}"
               ::"r"(d), "l"(a), "l"(b), "r"(IDESC), "r"((u32)accumulate) : "memory");
}
__device__ u64 descriptor(u32 address) {
  return (u64)(address >> 4 & 0x3FFF) | (u64)1 << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 46 | (u64)2 << 61;
}
__device__ bool elect() {
  u32 p;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, -1;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(p));
  return p;
}

extern "C" __global__ void __launch_bounds__(192) gemm(const __grid_constant__ Map a_map, const __grid_constant__ Map b_map,
                                                        float* c, int m, int n, int k, int ldc, float alpha) {
  extern __shared__ __align__(1024) char pool[];
  __shared__ u64 full[STAGES], empty[STAGES], acc_full[ACCUMULATORS], acc_empty[ACCUMULATORS];
  __shared__ u32 handle;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int tiles_m = (m + TILE_M - 1) / TILE_M, tiles_n = (n + TILE_N - 1) / TILE_N, blocks = (k + TILE_K - 1) / TILE_K;

  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) init(shared(full + s), 1), init(shared(empty + s), 1);
    for (int s = 0; s < ACCUMULATORS; ++s) init(shared(acc_full + s), 1), init(shared(acc_empty + s), 128);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  if (warp == 4) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 512;" ::"r"(shared(&handle)) : "memory");
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
  }
  __syncthreads();
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
  const u32 tensor = handle;

  if (warp == 5) {
    if (elect()) {
      int stage = 0, phase = 0;
      for (int tile = blockIdx.x; tile < tiles_m * tiles_n; tile += gridDim.x)
        for (int block = 0; block < blocks; ++block) {
#ifndef BREAK_EMPTY_WAIT
          wait(shared(empty + stage), phase ^ 1);
#endif
          const u32 bar = shared(full + stage), at = shared(pool) + stage * STAGE;
#ifdef BREAK_EXPECT
          expect(bar, STAGE + 16);
#else
          expect(bar, STAGE);
#endif
          load(at, &a_map, block * TILE_K, tile / tiles_n * TILE_M, bar);
          load(at + A_BYTES, &b_map, block * TILE_K, tile % tiles_n * TILE_N, bar);
          if (++stage == STAGES) stage = 0, phase ^= 1;
        }
    }
  } else if (warp == 4) {
    if (elect()) {
      int stage = 0, phase = 0, acc = 0, acc_phase = 0;
      for (int tile = blockIdx.x; tile < tiles_m * tiles_n; tile += gridDim.x) {
        wait(shared(acc_empty + acc), acc_phase ^ 1);
        asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
        for (int block = 0; block < blocks; ++block) {
#ifdef BREAK_PHASE
          wait(shared(full + stage), phase ^ 1);
#elif !defined(BREAK_FULL_WAIT)
          wait(shared(full + stage), phase);
#endif
          asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
          const u32 at = shared(pool) + stage * STAGE;
          for (int step = 0; step < 4; ++step)
            mma(tensor + acc * TILE_N, descriptor(at + 32 * step), descriptor(at + A_BYTES + 32 * step), block || step);
#ifndef BREAK_EMPTY_COMMIT
          commit(shared(empty + stage));
#endif
          if (++stage == STAGES) stage = 0, phase ^= 1;
        }
#ifndef BREAK_ACC_COMMIT
        commit(shared(acc_full + acc));
#endif
        if (++acc == ACCUMULATORS) acc = 0, acc_phase ^= 1;
      }
    }
  } else {
    int acc = 0, acc_phase = 0;
    for (int tile = blockIdx.x; tile < tiles_m * tiles_n; tile += gridDim.x) {
#ifndef BREAK_ACC_WAIT
      wait(shared(acc_full + acc), acc_phase);
#endif
      asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
      const int row = tile / tiles_n * TILE_M + warp * 32 + lane, first = tile % tiles_n * TILE_N;
#pragma unroll 1
      for (int column = 0; column < TILE_N; column += 32) {
        u32 v[32];
        asm volatile(
            "tcgen05.ld.sync.aligned.32x32b.x32.b32 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
            "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, [%32];"
            : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]), "=r"(v[4]), "=r"(v[5]), "=r"(v[6]), "=r"(v[7]), "=r"(v[8]),
              "=r"(v[9]), "=r"(v[10]), "=r"(v[11]), "=r"(v[12]), "=r"(v[13]), "=r"(v[14]), "=r"(v[15]), "=r"(v[16]),
              "=r"(v[17]), "=r"(v[18]), "=r"(v[19]), "=r"(v[20]), "=r"(v[21]), "=r"(v[22]), "=r"(v[23]), "=r"(v[24]),
              "=r"(v[25]), "=r"(v[26]), "=r"(v[27]), "=r"(v[28]), "=r"(v[29]), "=r"(v[30]), "=r"(v[31])
            : "r"(tensor + (warp * 32 << 16) + acc * TILE_N + column));
#ifndef BREAK_LOAD_WAIT
        asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
#endif
        if (row < m)
          for (int j = 0; j < 32; ++j)
            if (first + column + j < n) c[(long long)row * ldc + first + column + j] = alpha * __uint_as_float(v[j]);
      }
      asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
      arrive(shared(acc_empty + acc));
      if (++acc == ACCUMULATORS) acc = 0, acc_phase ^= 1;
    }
  }
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
  __syncthreads();
#ifndef BREAK_FREE
  if (warp == 4) {
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 512;" ::"r"(tensor));
  }
#endif
}
