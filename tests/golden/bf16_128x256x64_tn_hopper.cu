// blasdx_gemm_bf16_bf16_f32_128x256x64_tn_d4_sm_90a
//
// Size(128, 256, 64) + Precision(bf16, bf16, f32) + Type(real) + Function(MM) +
// Arrangement(row_major, col_major, row_major) + Block() + BlockDim(256) + Alignment(16, 16, 16) + WithPipeline()
// + EnableInputStreaming() + SM(900, arch_specific)
// fingerprint f8b6a9c3444f, target sm_90a, 384 threads, 229,440 B of dynamic shared memory, one CTA per SM
//
// role        warps  threads at work  task
// math        0-7    8                A x B -> registers -> shared memory -> C
// tma_load    8-11   1                A and B -> shared memory; three warps only hand their registers back
//
// barrier     stages  arrivals  from                                           waited for by  a phase ends when
// full             4         1  tma_load: arrive.expect_tx, then the bytes     math           the stage holds one K block
// empty            4         8  math: one lane a warp, after wait_group        tma_load       the MMAs have read the stage
//
// shared memory   offset    bytes
// staging              0    32768
// a                32768    65536
// b                98304   131072
// full            229376       32
// empty           229408       32

// Fixed-width names for the integer types a kernel counts and addresses with.
using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

// A TMA tensor map: 128 opaque bytes, passed by value as a __grid_constant__ parameter (PTX ISA 5.5.8).
struct alignas(64) TensorMap {
  u8 opaque[128];
};

// ---- Configuration: every number of this kernel ----------------------------------------------------------------------

constexpr u32 kTileM = 128;
constexpr u32 kTileN = 256;
constexpr u32 kTileK = 64;
constexpr u32 kDepth = 4;  // stages in shared memory
constexpr u32 kBand = 16;  // tiles along M that are visited together
using Output = u32;  // the bits of one f32
using Value = float;  // what an epilogue computes in

// The tile is shared out among 2 x 1 warpgroups along M x N. Each multiplies its 64 x 256 in kRowBlocks x kColumnBlocks
// MMAs of 64 x kMmaN x 16 for each of kMmaSteps along K.
constexpr u32 kGroups = 2;
constexpr u32 kGroupsN = 1;
constexpr u32 kRowBlocks = 1;
constexpr u32 kColumnBlocks = 1;
constexpr u32 kMmaN = 256;
constexpr u32 kMmaSteps = 4;
constexpr u32 kRegisters = 128;  // of one MMA's accumulator, a thread

// A, K-major: a stage is 1 span of 64 K x 128 rows.
constexpr u32 kAStageBytes = 16384;
constexpr u32 kASpans = 1;
constexpr u32 kASpanElements = 64;
constexpr u32 kASpanBytes = 16384;
constexpr u64 kALayout = 0x4000004000000000;  // 128B swizzle, 1024 B between groups of 8 rows
constexpr u32 kAStepsPerSpan = 4;
constexpr u32 kAStepBytes = 32;  // from one MMA step along K to the next inside a span
constexpr u32 kABlockBytes = 8192;  // from one MMA's rows to the next's

// B, K-major: a stage is 1 span of 64 K x 256 columns.
constexpr u32 kBStageBytes = 32768;
constexpr u32 kBSpans = 1;
constexpr u32 kBSpanElements = 64;
constexpr u32 kBSpanBytes = 32768;
constexpr u64 kBLayout = 0x4000004000000000;  // 128B swizzle, 1024 B between groups of 8 rows
constexpr u32 kBStepsPerSpan = 4;
constexpr u32 kBStepBytes = 32;  // from one MMA step along K to the next inside a span
constexpr u32 kBBlockBytes = 32768;  // from one MMA's columns to the next's

// C leaves through shared memory in chunks of 64 rows x kChunk columns, 128B swizzle; each warpgroup has kStagingBuffers.
constexpr u32 kChunk = 32;
constexpr u32 kSpan = 32;  // elements of a row of it that lie side by side
constexpr u32 kUnit = 4;  // and those that a thread copies at once
using Unit = uint4;
constexpr u32 kChunkBytes = 8192;
constexpr u32 kStagingBuffers = 2;

constexpr u32 kThreads = 384;
constexpr u32 kTmaLoadWarp = 8;

constexpr u32 kFullArrivals = 1;
constexpr u32 kEmptyArrivals = 8;

constexpr u32 kStagingOffset = 0;
constexpr u32 kAOffset = 32768;
constexpr u32 kBOffset = 98304;
constexpr u32 kFullOffset = 229376;
constexpr u32 kEmptyOffset = 229408;
constexpr u32 kMathWarps = 8;
constexpr u32 kMathRegisters = 232;  // a thread, after the other warps have handed theirs back
constexpr u32 kLoadRegisters = 40;

// ---- PTX: one instruction, one function -----------------------------------------------------------------------------

// True in exactly one lane of a converged warp, the same one each time.
__device__ __forceinline__ bool elect_one() {
  u32 elected;
  asm volatile(
      "{\n\t"
      ".reg .pred p;\n\t"
      "elect.sync _|p, 0xffffffff;\n\t"
      "selp.u32 %0, 1, 0, p;\n\t"
      "}"
      : "=r"(elected));
  return elected != 0;
}

// The 32-bit address PTX uses for shared memory.
__device__ __forceinline__ u32 shared_address(const void* pointer) {
  return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ u32 load_shared(u32 address) {
  u32 value;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

__device__ __forceinline__ void store_shared(u32 address, u32 value) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

__device__ __forceinline__ uint2 load_shared_64(u32 address) {
  uint2 value;
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(value.x), "=r"(value.y) : "r"(address) : "memory");
  return value;
}

__device__ __forceinline__ uint4 load_shared_128(u32 address) {
  uint4 value;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address)
               : "memory");
  return value;
}

__device__ __forceinline__ void store_shared_64(u32 address, uint2 value) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(value.x), "r"(value.y) : "memory");
}

__device__ __forceinline__ void store_shared_128(u32 address, uint4 value) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value.x), "r"(value.y), "r"(value.z),
               "r"(value.w)
               : "memory");
}

// Barrier `id` among the next `threads` threads that come to it.
__device__ __forceinline__ void named_barrier_sync(u32 id, u32 threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Makes this thread's writes to shared memory visible to TMA and the tensor core, once a barrier has passed them on.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Whole warpgroup. Hands registers back, down to kCount a thread.
template <u32 kCount>
__device__ __forceinline__ void registers_release() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}

// Whole warpgroup. Takes registers, up to kCount a thread; blocks until others have handed them back.
template <u32 kCount>
__device__ __forceinline__ void registers_claim() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

__device__ __forceinline__ void mbarrier_init(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the asynchronous proxy, which arrives on them as well.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// One arrival that also announces `bytes` of asynchronous copies; the phase ends only when they have landed.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// May give up after a time limit of the hardware's choosing, hence the loop in mbarrier_wait.
__device__ __forceinline__ bool mbarrier_try_wait(u32 barrier, u32 parity) {
  u32 done;
  asm volatile(
      "{\n\t"
      ".reg .pred p;\n\t"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
      "selp.u32 %0, 1, 0, p;\n\t"
      "}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

// Blocks until the phase of this parity has completed. On a fresh barrier parity 1 passes at once.
__device__ __forceinline__ void mbarrier_wait(u32 barrier, u32 parity) {
  while (!mbarrier_try_wait(barrier, parity)) {
  }
}

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

// Copies one box from shared memory, whose writers have fenced; what lies outside the tensor is not written.
__device__ __forceinline__ void tma_store_3d(const TensorMap& map, u32 inner, u32 outer, u32 batch, u32 source) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(&map),
               "r"(inner), "r"(outer), "r"(batch), "r"(source)
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

// ---- Shared memory ---------------------------------------------------------------------------------------------------

// 32-bit shared-memory addresses of everything the roles touch.
struct Storage {
  u32 base;

  __device__ u32 a(u32 stage) const { return base + kAOffset + stage * kAStageBytes; }
  __device__ u32 b(u32 stage) const { return base + kBOffset + stage * kBStageBytes; }
  __device__ u32 staging(u32 buffer) const { return base + kStagingOffset + buffer * kChunkBytes; }
  __device__ u32 full(u32 stage) const { return base + kFullOffset + stage * 8; }
  __device__ u32 empty(u32 stage) const { return base + kEmptyOffset + stage * 8; }
};

// Position in a ring of `kStages` stages. The phase bit flips each time round: a consumer waits for `phase`, a producer
// for the opposite one, which a fresh barrier passes at once.
template <u32 kStages>
struct Ring {
  u32 stage = 0;
  u32 phase = 0;

  __device__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

// One thread, before anyone uses a barrier.
__device__ void initialise_barriers(const Storage& storage) {
  for (u32 stage = 0; stage < kDepth; ++stage) {
    mbarrier_init(storage.full(stage), kFullArrivals);
    mbarrier_init(storage.empty(stage), kEmptyArrivals);
  }
  fence_mbarrier_init();
}

// ---- Role tma_load: one thread of its warp ---------------------------------------------------------------------------

// A place among the tiles of A or B: the tile along M or N, the batch, and the K block to begin with.
struct Coordinate {
  u32 tile;
  u32 batch = 0;
  u32 k_block = 0;
};

// Where the K loop of a tile reads its operands.
struct Source {
  const TensorMap& a_map;
  const TensorMap& b_map;
  Coordinate a, b;
  u32 k_blocks;
};

// Fills a stage with one K block of A and B, whose bytes complete full[stage].
__device__ __forceinline__ void load_stage(const Storage& storage, const Source& source, u32 stage, u32 k_block) {
  const u32 full = storage.full(stage);
  mbarrier_arrive_expect_tx(full, kAStageBytes + kBStageBytes);
#pragma unroll 4
  for (u32 span = 0; span < kASpans; ++span) {
    const u32 destination = storage.a(stage) + span * kASpanBytes;
    const u32 inner = (source.a.k_block + k_block) * kTileK + span * kASpanElements;
    const u32 outer = source.a.tile * kTileM;
    tma_load_3d(destination, source.a_map, inner, outer, source.a.batch, full);
  }
#pragma unroll 4
  for (u32 span = 0; span < kBSpans; ++span) {
    const u32 destination = storage.b(stage) + span * kBSpanBytes;
    const u32 inner = (source.b.k_block + k_block) * kTileK + span * kBSpanElements;
    const u32 outer = source.b.tile * kTileN;
    tma_load_3d(destination, source.b_map, inner, outer, source.b.batch, full);
  }
}

// Waits empty[stage] for each K block of a tile and fills the stage.
__device__ __forceinline__ void tma_load(const Storage& storage, const Source& source, Ring<kDepth>& ring) {
#pragma unroll 1
  for (u32 k_block = 0; k_block < source.k_blocks; ++k_block) {
    mbarrier_wait(storage.empty(ring.stage), ring.phase ^ 1);
    load_stage(storage, source, ring.stage, k_block);
    ring.advance();
  }
}

// ---- Role math, first half: multiply ---------------------------------------------------------------------------------

// Where the operand of an MMA step starts inside its stage. Within a swizzle period the hardware adds this offset first
// and applies the XOR to the sum, so plain additions are enough.
__device__ constexpr u32 a_offset(u32 block, u32 step) {
  return block * kABlockBytes + step / kAStepsPerSpan * kASpanBytes + step % kAStepsPerSpan * kAStepBytes;
}

__device__ constexpr u32 b_offset(u32 block, u32 step) {
  return block * kBBlockBytes + step / kBStepsPerSpan * kBSpanBytes + step % kBStepsPerSpan * kBStepBytes;
}

__device__ u64 matrix_descriptor(u64 layout, u32 address) { return layout | address >> 4; }

// One instruction of the warpgroup, asynchronous: D = A * B (+ D when `accumulate`), 64 x kMmaN x 16.
__device__ __forceinline__ void wgmma(u32 (&d)[kRegisters], u64 a, u64 b, bool accumulate) {
  asm volatile(
      "{\n\t"
      ".reg .pred p;\n\t"
      "setp.ne.b32 p, %130, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16\n\t"
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21,\n\t"
      "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41,\n\t"
      "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61,\n\t"
      "%62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81,\n\t"
      "%82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100,\n\t"
      "%101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116,\n\t"
      "%117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127},\n\t"
      "%128, %129, p, 1, 1, 0, 0;\n\t"
      "}"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7]),
        "+r"(d[8]), "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]), "+r"(d[14]),
        "+r"(d[15]), "+r"(d[16]), "+r"(d[17]), "+r"(d[18]), "+r"(d[19]), "+r"(d[20]), "+r"(d[21]),
        "+r"(d[22]), "+r"(d[23]), "+r"(d[24]), "+r"(d[25]), "+r"(d[26]), "+r"(d[27]), "+r"(d[28]),
        "+r"(d[29]), "+r"(d[30]), "+r"(d[31]), "+r"(d[32]), "+r"(d[33]), "+r"(d[34]), "+r"(d[35]),
        "+r"(d[36]), "+r"(d[37]), "+r"(d[38]), "+r"(d[39]), "+r"(d[40]), "+r"(d[41]), "+r"(d[42]),
        "+r"(d[43]), "+r"(d[44]), "+r"(d[45]), "+r"(d[46]), "+r"(d[47]), "+r"(d[48]), "+r"(d[49]),
        "+r"(d[50]), "+r"(d[51]), "+r"(d[52]), "+r"(d[53]), "+r"(d[54]), "+r"(d[55]), "+r"(d[56]),
        "+r"(d[57]), "+r"(d[58]), "+r"(d[59]), "+r"(d[60]), "+r"(d[61]), "+r"(d[62]), "+r"(d[63]),
        "+r"(d[64]), "+r"(d[65]), "+r"(d[66]), "+r"(d[67]), "+r"(d[68]), "+r"(d[69]), "+r"(d[70]),
        "+r"(d[71]), "+r"(d[72]), "+r"(d[73]), "+r"(d[74]), "+r"(d[75]), "+r"(d[76]), "+r"(d[77]),
        "+r"(d[78]), "+r"(d[79]), "+r"(d[80]), "+r"(d[81]), "+r"(d[82]), "+r"(d[83]), "+r"(d[84]),
        "+r"(d[85]), "+r"(d[86]), "+r"(d[87]), "+r"(d[88]), "+r"(d[89]), "+r"(d[90]), "+r"(d[91]),
        "+r"(d[92]), "+r"(d[93]), "+r"(d[94]), "+r"(d[95]), "+r"(d[96]), "+r"(d[97]), "+r"(d[98]),
        "+r"(d[99]), "+r"(d[100]), "+r"(d[101]), "+r"(d[102]), "+r"(d[103]), "+r"(d[104]), "+r"(d[105]),
        "+r"(d[106]), "+r"(d[107]), "+r"(d[108]), "+r"(d[109]), "+r"(d[110]), "+r"(d[111]), "+r"(d[112]),
        "+r"(d[113]), "+r"(d[114]), "+r"(d[115]), "+r"(d[116]), "+r"(d[117]), "+r"(d[118]), "+r"(d[119]),
        "+r"(d[120]), "+r"(d[121]), "+r"(d[122]), "+r"(d[123]), "+r"(d[124]), "+r"(d[125]), "+r"(d[126]),
        "+r"(d[127])
      : "l"(a), "l"(b), "r"(static_cast<u32>(accumulate))
      : "memory");
}

struct Registers {
  u32 block[kRowBlocks][kColumnBlocks][kRegisters];
};

// The warp's arrival on empty[stage].
__device__ __forceinline__ void release(const Storage& storage, u32 stage) {
  if (threadIdx.x % 32 == 0) {
    mbarrier_arrive(storage.empty(stage));
  }
}

// Waits full[stage] for each K block; multiplies; arrives on the empty[stage] before it once those MMAs are complete.
__device__ __forceinline__ void multiply(const Storage& storage, const Source& source, u32 group, Ring<kDepth>& ring,
                                         Registers& acc) {
  const u32 a_start = group / kGroupsN * kRowBlocks * kABlockBytes;
  const u32 b_start = group % kGroupsN * kColumnBlocks * kBBlockBytes;
  u32 previous = 0;
#pragma unroll 1
  for (u32 k_block = 0; k_block < source.k_blocks; ++k_block) {
    mbarrier_wait(storage.full(ring.stage), ring.phase);
    wgmma_fence();
#pragma unroll
    for (u32 step = 0; step < kMmaSteps; ++step) {
#pragma unroll
      for (u32 column = 0; column < kColumnBlocks; ++column) {
        const u64 b = matrix_descriptor(kBLayout, storage.b(ring.stage) + b_start + b_offset(column, step));
#pragma unroll
        for (u32 row = 0; row < kRowBlocks; ++row) {
          const u64 a = matrix_descriptor(kALayout, storage.a(ring.stage) + a_start + a_offset(row, step));
          wgmma(acc.block[row][column], a, b, k_block + step > 0);
        }
      }
    }
    wgmma_commit_group();
    if (k_block > 0) {
      wgmma_wait_group<1>();
      release(storage, previous);
    }
    previous = ring.stage;
    ring.advance();
  }
  wgmma_wait_group<0>();
  release(storage, previous);
#pragma unroll
  for (u32 row = 0; row < kRowBlocks; ++row) {
#pragma unroll
    for (u32 column = 0; column < kColumnBlocks; ++column) {
#pragma unroll
      for (u32 i = 0; i < kRegisters; ++i) {
        pin_register(acc.block[row][column][i]);
      }
    }
  }
}

// ---- Tile: what a kernel drives --------------------------------------------------------------------------------------

class Accumulator;

// The tile at work in this CTA. All threads of the block construct it, make the same calls, and leave together.
class Tile {
 public:
  __device__ __forceinline__ Tile(u8* smem, const Source& source)
      : source(source),
        storage{shared_address(smem)},
        warp(__shfl_sync(0xffffffff, threadIdx.x / 32, 0)),
        leader(elect_one()) {
    if (warp == kTmaLoadWarp && leader) {
      tma_prefetch_map(source.a_map);
      tma_prefetch_map(source.b_map);
      initialise_barriers(storage);
    }
    __syncthreads();
  }
  Tile(const Tile&) = delete;

  __device__ __forceinline__ ~Tile() {
    if (threadIdx.x % 128 == 0) {
      bulk_wait_group<0>();
    }
  }

  // Points to another tile; Pipeline::reset_tile calls it.
  __device__ void point(Coordinate a, Coordinate b, u32 k_blocks) {
    source.a = a;
    source.b = b;
    source.k_blocks = k_blocks;
  }

  // A * B of this tile; then functor(accumulator) on the math threads, while tma_load already fetches the next tile.
  template <typename Functor>
  __device__ __forceinline__ void execute(Functor functor) {
    if (warp < kMathWarps) {
      multiply_and(functor);
    } else {
      load();
    }
  }

  // Calls body(tile) in each role, so that each has a loop of its own; tma_load then hands registers to the math warps,
  // which ptxas allows only where their paths do not meet again.
  template <typename Body>
  __device__ __forceinline__ void specialise(Body body) {
    if (warp < kMathWarps) {
      registers_claim<kMathRegisters>();
      body(Math{*this});
    } else {
      registers_release<kLoadRegisters>();
      body(Load{*this});
    }
  }

 private:
  friend class Accumulator;

  // The tile as one role sees it.
  struct Load {
    Tile& tile;

    __device__ void point(Coordinate a, Coordinate b, u32 k_blocks) const { tile.point(a, b, k_blocks); }
    template <typename Functor>
    __device__ __forceinline__ void execute(Functor) const {
      tile.load();
    }
  };
  struct Math {
    Tile& tile;

    __device__ void point(Coordinate a, Coordinate b, u32 k_blocks) const { tile.point(a, b, k_blocks); }
    template <typename Functor>
    __device__ __forceinline__ void execute(Functor functor) const {
      tile.multiply_and(functor);
    }
  };

  __device__ __forceinline__ void load() {
    if (warp == kTmaLoadWarp && leader) {
      tma_load(storage, source, ring);
    }
  }

  template <typename Functor>
  __device__ __forceinline__ void multiply_and(Functor functor);

  __device__ u32 group() const { return warp / 4; }

  Source source;
  Storage storage;
  u32 warp;
  bool leader;
  Ring<kDepth> ring;
  u32 buffer = 0;  // of the warpgroup's staging buffers
};

// ---- Tiles in memory -------------------------------------------------------------------------------------------------

// A place inside a tile.
struct Index {
  u32 row, column;
};

// The part of a row-major matrix of the output's type that a tile covers. It stays apart in its fields, which in
// a kernel's parameters take no registers.
template <typename T>
struct MemoryTile {
  static_assert(sizeof(T) == sizeof(Output), "tiles in memory hold f32, the type that this pipeline was planned to store");

  T* data;
  u64 ld, batch_stride;  // elements between rows and between batches
  u32 rows, columns;     // of the matrix; nothing outside is touched
  u32 row, column;       // the tile's first element
  u32 batch = 0;
  const TensorMap* map = nullptr;  // of the matrix, where TMA can write it

  // Whether every row begins on a multiple of so many bytes.
  __device__ bool is_aligned_to(u32 bytes) const {
    return (reinterpret_cast<u64>(data) | (ld | batch_stride) * sizeof(T)) % bytes == 0;
  }
  __device__ bool holds(Index at) const { return row + at.row < rows && column + at.column < columns; }
  // How many elements of a row, from one on, lie inside.
  __device__ u32 inside(Index at) const { return holds(at) ? columns - (column + at.column) : 0; }
  __device__ T* operator[](Index at) const {
    return data + batch * batch_stride + (row + at.row) * ld + (column + at.column);
  }
};

// Tile (row, column) of a matrix.
template <typename T>
__device__ MemoryTile<T> get_tile(T* matrix, u32 rows, u32 columns, u64 ld, u32 row, u32 column) {
  return {matrix, ld, 0, rows, columns, row * kTileM, column * kTileN};
}

// ---- Accumulator: what an epilogue gets ------------------------------------------------------------------------------

// What a thread holds of one row of a chunk, kRun elements: kRunAdjacent side by side, kRunStep further on the next.
constexpr u32 kRun = kChunk / 4;
constexpr u32 kRunAdjacent = 2;
constexpr u32 kRunStep = 8;

// Where C's element lies in a staging buffer, which begins where the swizzle's pattern does.
__device__ u32 staged(u32 buffer, u32 row, u32 column) {
  const u32 pattern = row % 8 * 16;
  return buffer + row * (kSpan * sizeof(Output)) + (column * sizeof(Output) ^ pattern);
}

// Copies what of a chunk lies inside the matrix, neighbours by neighbouring threads: whole units where the matrix is aligned
// to them, single elements at its edge and elsewhere.
template <typename T, typename CopyUnit, typename Copy>
__device__ __forceinline__ void copy_chunk(const MemoryTile<T>& tile, u32 buffer, Index chunk, CopyUnit copy_unit, Copy copy) {
  const u32 width = tile.is_aligned_to(sizeof(Unit)) ? kUnit : 1;
#pragma unroll 1
  for (u32 i = threadIdx.x % 128 * width; i < 64 * kChunk; i += 128 * width) {
    const u32 row = i / kChunk;
    const u32 column = i % kChunk;
    const Index at = {chunk.row + row, chunk.column + column};
    const u32 staging = staged(buffer, row, column);
    T* const memory = tile[at];
    const u32 inside = min(tile.inside(at), width);
    if (inside == kUnit) {
      copy_unit(staging, memory);
      continue;
    }
#pragma unroll 1
    for (u32 j = 0; j < inside; ++j) {
      copy(staging + j * sizeof(T), memory + j);
    }
  }
}

// Brings a chunk into a staging buffer.
template <typename T>
__device__ __forceinline__ void fetch_chunk(const MemoryTile<T>& tile, u32 buffer, Index chunk) {
  copy_chunk(
      tile, buffer, chunk,
      [](u32 address, T* unit) { store_shared_128(address, *reinterpret_cast<const Unit*>(unit)); },
      [](u32 address, T* element) { store_shared(address, *element); });
}

// Stores a staged chunk without TMA.
template <typename T>
__device__ __forceinline__ void store_chunk(const MemoryTile<T>& tile, u32 buffer, Index chunk) {
  copy_chunk(
      tile, buffer, chunk,
      [](u32 address, T* unit) { *reinterpret_cast<Unit*>(unit) = load_shared_128(address); },
      [](u32 address, T* element) { *element = load_shared(address); });
}

// Where a thread's run is staged: pairs of neighbours, 8 columns from one to the next.
struct StagedRun {
  u32 first;
  __device__ StagedRun(u32 buffer, u32 row, u32 column) : first(staged(buffer, row, column)) {}
  __device__ u32 pair(u32 i) const { return first ^ i * (8 * sizeof(Output)); }  // `first` is among the row's first 8 columns

  __device__ void write(u32 i, const Value* values) const {
    const u32 one = __float_as_uint(values[0]), other = __float_as_uint(values[1]);
    store_shared_64(pair(i), make_uint2(one, other));
  }

  __device__ void read(u32 i, Value* values) const {
    const uint2 both = load_shared_64(pair(i));
    const u32 one = both.x, other = both.y;
    values[0] = __uint_as_float(one);
    values[1] = __uint_as_float(other);
  }
};

class Accumulator {
 public:
  __device__ bool is_thread_active() const { return tile.warp < kMathWarps; }

  // Where a thread's i-th element lies in the tile. For every 8 columns of an MMA a thread holds two neighbours in a row
  // and two more eight rows below.
  __device__ Index map_fragment_index(u32 i) const {
    const u32 element = i % (kMmaN / 2);
    const u32 row_block = i / (kMmaN / 2) / kColumnBlocks;
    const u32 column_block = i / (kMmaN / 2) % kColumnBlocks;
    const u32 row = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4 + element / 2 % 2 * 8;
    const u32 column = threadIdx.x % 4 * 2 + element / 4 * 8 + element % 2;
    return {(tile.group() / kGroupsN * kRowBlocks + row_block) * 64 + row,
            (tile.group() % kGroupsN * kColumnBlocks + column_block) * kMmaN + column};
  }

  // f(run, old, row, column) changes a run of results that begins there, given what `c` holds in its place (zeros unless
  // `reads_c`); they leave through shared memory, one chunk after the other, in whole lines.
  template <typename T, typename C, typename Function>
  __device__ __forceinline__ void store(const MemoryTile<T>& out, const MemoryTile<C>& c, bool reads_c, Function f) {
    const u32 group = tile.group();
    const bool bulk = out.map != nullptr;
    const bool issues = threadIdx.x % 128 == 0;
#pragma unroll
    for (u32 row_block = 0; row_block < kRowBlocks; ++row_block) {
#pragma unroll
      for (u32 chunk = 0; chunk < kColumnBlocks * kMmaN; chunk += kChunk) {
        const Index place = {(group / kGroupsN * kRowBlocks + row_block) * 64, group % kGroupsN * kColumnBlocks * kMmaN + chunk};
        const u32 staging = tile.storage.staging(group * kStagingBuffers + tile.buffer);
        if (issues) {
          bulk_wait_group_read<kStagingBuffers - 1>();
        }
        named_barrier_sync(group + 1, 128);  // everyone is done with what the buffer held
        if (reads_c) {
          fetch_chunk(c, staging, place);
          named_barrier_sync(group + 1, 128);
        }
        // A fragment holds, for every 8 columns, two neighbours in a row and two more eight rows below.
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
          const u32 first = (row_block * kColumnBlocks * kMmaN + chunk) / 2 + half * kRunAdjacent;
          const Index at = map_fragment_index(first);
          const StagedRun staged_run(staging, at.row % 64, at.column - place.column);
          Value run[kRun];
          Value old[kRun] = {};
#pragma unroll
          for (u32 i = 0; i < kRun; i += kRunAdjacent) {
            run[i] = result(first + 2 * i);
            run[i + 1] = result(first + 2 * i + 1);
          }
          if (!f.keeps_sums()) {
#pragma unroll
            for (u32 i = 0; i < kRun; i += kRunAdjacent) {
              if (reads_c) {
                staged_run.read(i / kRunAdjacent, old + i);
              }
            }
            f(run, old, at.row, at.column);
          }
#pragma unroll
          for (u32 i = 0; i < kRun; i += kRunAdjacent) {
            staged_run.write(i / kRunAdjacent, run + i);
          }
        }
        if (bulk) {
          fence_proxy_async();
        }
        named_barrier_sync(group + 1, 128);  // the chunk is whole
        if (!bulk) {
          store_chunk(out, staging, place);
        } else if (issues) {
          tma_store_3d(*out.map, out.column + place.column, out.row + place.row, out.batch, staging);
          bulk_commit_group();
        }
        tile.buffer = (tile.buffer + 1) % kStagingBuffers;
      }
    }
  }

 private:
  friend class Tile;
  __device__ explicit Accumulator(Tile& tile) : tile(tile) {}

  __device__ Value result(u32 i) const {
    const u32 (&fragment)[kRegisters] = sum.block[i / (kMmaN / 2) / kColumnBlocks][i / (kMmaN / 2) % kColumnBlocks];
    const u32 element = i % (kMmaN / 2);
    return __uint_as_float(fragment[element]);
  }

  Tile& tile;
  Registers sum;
};

template <typename Functor>
__device__ __forceinline__ void Tile::multiply_and(Functor functor) {
  Accumulator accumulator(*this);
  multiply(storage, source, group(), ring, accumulator.sum);
  functor(accumulator);
}

// ---- Pipeline: where a kernel begins ---------------------------------------------------------------------------------

struct Pipeline {
  const TensorMap& a_map;
  const TensorMap& b_map;
  u32 k;  // extent of the problem

  static constexpr u32 max_threads_per_block = kThreads;
  __host__ __device__ static constexpr u32 buffer_alignment() { return 1024; }
  __host__ __device__ static constexpr u32 buffer_size() { return 229440; }

  // K blocks of the problem.
  __device__ u32 k_blocks() const { return (k + kTileK - 1) / kTileK; }

  // Once per CTA: the tile of A along M and that of B along N, or their whole coordinates.
  __device__ __forceinline__ Tile get_tile(u8* smem, Coordinate a, Coordinate b) const {
    return Tile(smem, {a_map, b_map, a, b, k_blocks()});
  }

  // For every further tile.
  template <typename AnyTile>
  __device__ __forceinline__ void reset_tile(AnyTile& tile, Coordinate a, Coordinate b) const {
    tile.point(a, b, k_blocks());
  }
};

// ---- Problem ---------------------------------------------------------------------------------------------------------

// out = alpha * acc + beta * c
// for `batches` problems of m x n x k, acc being A * B; c is read only where beta is not zero.
struct Problem {
  Output* out;
  const Output* c;
  u64 out_ld, c_ld;  // elements between rows
  u64 out_batch, c_batch;  // elements between batches
  u32 m, n, k, batches;
  u32 a_batch, b_batch;  // 1, or 0 where all batches share one operand
  float alpha, beta;

  struct Place {
    u32 row, column, batch;  // of tiles
  };

  // A tile of the output.
  __device__ MemoryTile<Output> out_tile(Place at, const TensorMap& map) const {
    return {out, out_ld, out_batch, m, n, at.row * kTileM, at.column * kTileN, at.batch, is_bulk_storable() ? &map : nullptr};
  }

  // Whether TMA can write C: its address and strides have to be multiples of 16 bytes, and so have its rows, because a
  // store clips them in units of 16 bytes: what follows a row would be overwritten up to there.
  __device__ bool is_bulk_storable() const {
    const u64 bytes = (out_ld | out_batch | n) * sizeof(Output);
    return (reinterpret_cast<u64>(out) | bytes) % 16 == 0;
  }

  // A tile of C.
  __device__ MemoryTile<const Output> c_tile(Place at) const {
    return {c, c_ld, c_batch, m, n, at.row * kTileM, at.column * kTileN, at.batch};
  }

  // The tiles of A and B that make one of the output.
  __device__ Coordinate a_tile(Place at) const { return {at.row, at.batch * a_batch}; }
  __device__ Coordinate b_tile(Place at) const { return {at.column, at.batch * b_batch}; }
};
static_assert(sizeof(Problem) == 80, "the host packs this struct");

// The tiles of the output, batch after batch, in bands of kBand along M, inside a band column by column: what
// is at work at one time shares few rows of A and few columns of B, which then stay in L2.
struct Schedule {
  u32 m_tiles, n_tiles, count;

  __device__ explicit Schedule(const Problem& problem)
      : m_tiles((problem.m + kTileM - 1) / kTileM),
        n_tiles((problem.n + kTileN - 1) / kTileN),
        count(m_tiles * n_tiles * problem.batches) {}

  // The first tile of this CTA, and how far it is to its next one.
  __device__ static u32 first() { return blockIdx.x; }
  __device__ static u32 step() { return gridDim.x; }

  __device__ Problem::Place operator[](u32 index) const {
    const u32 batch = index / (m_tiles * n_tiles);
    const u32 tile = index % (m_tiles * n_tiles);
    const u32 band = tile / (kBand * n_tiles);
    const u32 inside = tile % (kBand * n_tiles);
    const u32 extent = min(kBand, m_tiles - band * kBand);
    const u32 along = band * kBand + inside % extent;
    const u32 across = inside / extent;
    return {along, across, batch};
  }
};

// ---- Epilogue: what becomes of a sum ---------------------------------------------------------------------------------

// alpha * acc + beta * c
struct Epilogue {
  const Problem& problem;
  Problem::Place at;

  // Whether the results are the sums as they are.
  __device__ bool keeps_sums() const { return problem.alpha == 1 && problem.beta == 0; }

  // Makes results of the sums in `value`, a run that begins at (row, column) of the tile;
  // `c` is what C holds there, zeros where beta is zero.
  __device__ __forceinline__ void operator()(Value (&value)[kRun], const Value (&c)[kRun], u32 row, u32 column) const {
#pragma unroll
    for (u32 i = 0; i < kRun; ++i) {
      value[i] = problem.alpha * value[i] + problem.beta * c[i];
    }
  }
};

// ---- Kernel ----------------------------------------------------------------------------------------------------------

extern "C" __global__ void __launch_bounds__(Pipeline::max_threads_per_block, 1)
blasdx_gemm_bf16_bf16_f32_128x256x64_tn_d4_sm_90a(
    const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map,
    const __grid_constant__ TensorMap out_map, const __grid_constant__ Problem problem) {
  extern __shared__ __align__(Pipeline::buffer_alignment()) u8 smem[];
  const Pipeline pipeline{a_map, b_map, problem.k};
  const Schedule schedule(problem);
  Tile whole = pipeline.get_tile(smem, {0}, {0});
  whole.specialise([&](auto&& tile) {
    for (u32 index = schedule.first(); index < schedule.count; index += schedule.step()) {
      const Problem::Place next = schedule[index];
      pipeline.reset_tile(tile, problem.a_tile(next), problem.b_tile(next));
      tile.execute([&](Accumulator& accumulator) {
        const Problem::Place at = schedule[index];  // once more, instead of registers that last through the K loop
        const auto out = problem.out_tile(at, out_map);
        accumulator.store(out, problem.c_tile(at), problem.beta != 0, Epilogue{problem, at});
      });
    }
  });
}
