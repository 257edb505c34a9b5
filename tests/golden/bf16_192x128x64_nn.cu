// blasdx_gemm_bf16_bf16_f32_192x128x64_nn_d5_sm_103a
//
// Size(192, 128, 64) + Precision(bf16, bf16, f32) + Type(real) + Function(MM) +
// Arrangement(col_major, col_major, row_major) + Block() + BlockDim(128) + Alignment(16, 16, 16) + WithPipeline()
// + EnableInputStreaming() + SM(1030, arch_specific)
// fingerprint 671b18f1cb83, target sm_103a, 192 threads, 204,900 B of dynamic shared memory, one CTA per SM
//
// role        warps  threads at work  task
// epilogue    0-3    128              tensor memory -> registers -> C; warp w reaches lanes 32 w .. 32 w + 31
// mma_issue   4      1                A x B -> tensor memory; owns tensor memory
// tma_load    5      1                A and B -> shared memory
//
// barrier     stages  arrivals  from                                           waited for by  a phase ends when
// full             5         1  tma_load: arrive.expect_tx, then the bytes     mma_issue      the stage holds one K block
// empty            5         1  mma_issue: tcgen05.commit                      tma_load       the MMAs have read the stage
// acc_full         1         1  mma_issue: tcgen05.commit                      epilogue       the accumulator is complete
// acc_empty        1       128  epilogue: every thread, after its last load    mma_issue      the accumulator has been read
//
// shared memory   offset    bytes
// a                    0   122880
// b               122880    81920
// full            204800       40
// empty           204840       40
// acc_full        204880        8
// acc_empty       204888        8
// tmem_handle     204896        4

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

constexpr u32 kTileM = 192;
constexpr u32 kTileN = 128;
constexpr u32 kTileK = 64;
constexpr u32 kDepth = 5;  // stages in shared memory
constexpr u32 kBand = 16;  // tiles along M that are visited together
using Output = u32;  // the bits of one f32
using Value = float;  // what an epilogue computes in

// One MMA multiplies 64 x kTileN x 16; a K block takes kMmaBlocks x kMmaSteps of them.
constexpr u32 kBlockRows = 64;  // of one MMA in this CTA
constexpr u32 kMmaBlocks = 3;
constexpr u32 kMmaSteps = 4;
constexpr u32 kInstruction = 0x04208490;  // bf16 x bf16 -> f32, 64 x 128, A MN-major, B K-major

// A, MN-major: a stage is 3 spans of 64 rows x 64 K.
constexpr u32 kAStageBytes = 24576;
constexpr u32 kASpans = 3;
constexpr u32 kASpanElements = 64;
constexpr u32 kASpanBytes = 8192;
constexpr u64 kALayout = 0x4000404002000000;  // 128B swizzle, 1024 B between groups of 8 K, 8192 B between spans
constexpr u32 kAStepsPerSpan = 4;
constexpr u32 kAStepBytes = 2048;  // from one MMA step along K to the next inside a span
constexpr u32 kABlockBytes = 8192;  // from one MMA's rows to the next's

// B, K-major: a stage is 1 span of 64 K x 128 columns.
constexpr u32 kBStageBytes = 16384;
constexpr u32 kBSpans = 1;
constexpr u32 kBSpanElements = 64;
constexpr u32 kBSpanBytes = 16384;
constexpr u64 kBLayout = 0x4000404000000000;  // 128B swizzle, 1024 B between groups of 8 rows
constexpr u32 kBStepsPerSpan = 4;
constexpr u32 kBStepBytes = 32;  // from one MMA step along K to the next inside a span

constexpr u32 kTmemColumns = 512;  // all of them: one CTA owns the SM
constexpr u32 kAccStages = 1;
constexpr u32 kAccColumns = 384;
constexpr u32 kBlockColumns = 128;  // of one MMA

// The epilogue reads kChunk columns at a time, of which a thread gets kRun consecutive ones of one row.
constexpr u32 kChunk = 32;
constexpr u32 kRun = 16;
constexpr u32 kRunAdjacent = kRun;
constexpr u32 kRunStep = kRun;
constexpr u32 kWarpRows = 16;  // of one MMA, that a warp reads

constexpr u32 kThreads = 192;
constexpr u32 kMmaIssueWarp = 4;
constexpr u32 kTmaLoadWarp = 5;

constexpr u32 kFullArrivals = 1;
constexpr u32 kEmptyArrivals = 1;
constexpr u32 kAccFullArrivals = 1;
constexpr u32 kAccEmptyArrivals = 128;

constexpr u32 kAOffset = 0;
constexpr u32 kBOffset = 122880;
constexpr u32 kFullOffset = 204800;
constexpr u32 kEmptyOffset = 204840;
constexpr u32 kAccFullOffset = 204880;
constexpr u32 kAccEmptyOffset = 204888;
constexpr u32 kTmemHandleOffset = 204896;
constexpr u32 kEpilogueWarps = 4;

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

// One arrival on `barrier` once every MMA this thread has issued is complete.
__device__ __forceinline__ void tcgen05_commit(u32 barrier) {
  asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier)
               : "memory");
}

// Threads 0-15 of the warp receive consecutive columns of tensor-memory lanes 0-15, threads 16-31 the next ones of the same
// lanes. The wait stands in the same statement because the registers are undefined until then.
__device__ __forceinline__ void tmem_load_16x32bx2_x16(u32 tmem, u32 (&r)[16]) {
  asm volatile(
      "tcgen05.ld.sync.aligned.16x32bx2.x16.b32\n\t"
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, [%16], 16;\n\t"
      "tcgen05.wait::ld.sync.aligned;"
      : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]), "=r"(r[4]), "=r"(r[5]), "=r"(r[6]), "=r"(r[7]),
        "=r"(r[8]), "=r"(r[9]), "=r"(r[10]), "=r"(r[11]), "=r"(r[12]), "=r"(r[13]), "=r"(r[14]), "=r"(r[15])
      : "r"(tmem)
      : "memory");
}

// ---- Shared memory ---------------------------------------------------------------------------------------------------

// 32-bit shared-memory addresses of everything the roles touch.
struct Storage {
  u32 base;

  __device__ u32 a(u32 stage) const { return base + kAOffset + stage * kAStageBytes; }
  __device__ u32 b(u32 stage) const { return base + kBOffset + stage * kBStageBytes; }
  __device__ u32 full(u32 stage) const { return base + kFullOffset + stage * 8; }
  __device__ u32 empty(u32 stage) const { return base + kEmptyOffset + stage * 8; }
  __device__ u32 acc_full(u32 stage) const { return base + kAccFullOffset + stage * 8; }
  __device__ u32 acc_empty(u32 stage) const { return base + kAccEmptyOffset + stage * 8; }
  __device__ u32 tmem_handle() const { return base + kTmemHandleOffset; }
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
  for (u32 stage = 0; stage < kAccStages; ++stage) {
    mbarrier_init(storage.acc_full(stage), kAccFullArrivals);
    mbarrier_init(storage.acc_empty(stage), kAccEmptyArrivals);
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
    const u32 inner = source.a.tile * kTileM + span * kASpanElements;
    const u32 outer = (source.a.k_block + k_block) * kTileK;
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

// ---- Role mma_issue: a warp, one thread of which issues -------------------------------------------------------------

// Where the operand of an MMA step starts inside its stage. Within a swizzle period the hardware adds this offset first
// and applies the XOR to the sum, so plain additions are enough.
__device__ constexpr u32 a_offset(u32 block, u32 step) {
  return block * kABlockBytes + step / kAStepsPerSpan * kASpanBytes + step % kAStepsPerSpan * kAStepBytes;
}

__device__ constexpr u32 b_offset(u32 step) {
  return step / kBStepsPerSpan * kBSpanBytes + step % kBStepsPerSpan * kBStepBytes;
}

__device__ u64 matrix_descriptor(u64 layout, u32 address) { return layout | address >> 4; }

// Waits full[stage] for each K block of a tile; multiplies; commits to empty[stage]. The first product replaces what the
// accumulator held when `fresh`. The whole warp goes round, so that the loop's arithmetic is uniform; `leader` issues.
__device__ __forceinline__ void mma_issue(const Storage& storage, u32 k_blocks, u32 accumulator, bool fresh, bool leader,
                                          Ring<kDepth>& ring) {
  const u64 a_first = matrix_descriptor(kALayout, storage.a(0));
  const u64 b_first = matrix_descriptor(kBLayout, storage.b(0));
  // All lanes have the same; this tells the compiler, which otherwise keeps the loop's state apart for each lane.
  accumulator = __shfl_sync(0xffffffff, accumulator, 0);
  k_blocks = __reduce_max_sync(0xffffffff, k_blocks);
  bool accumulate = !fresh;
#pragma unroll 1
  for (u32 k_block = 0; k_block < k_blocks; ++k_block) {
    mbarrier_wait(storage.full(ring.stage), ring.phase);
    tcgen05_fence_after_thread_sync();
    // 64-bit sums: ptxas puts a descriptor's constant upper half together anew for each 32-bit one.
    const u64 a_stage = a_first + static_cast<u64>(ring.stage) * (kAStageBytes / 16);
    const u64 b_stage = b_first + static_cast<u64>(ring.stage) * (kBStageBytes / 16);
    if (leader) {
#pragma unroll
      for (u32 step = 0; step < kMmaSteps; ++step) {
        const u64 b = b_stage + b_offset(step) / 16;
#pragma unroll
        for (u32 block = 0; block < kMmaBlocks; ++block) {
          const u64 a = a_stage + a_offset(block, step) / 16;
          tcgen05_mma_f16(accumulator + block * kBlockColumns, a, b, kInstruction, accumulate || step > 0);
        }
      }
      tcgen05_commit(storage.empty(ring.stage));
    }
    accumulate = true;
    ring.advance();
  }
}

// ---- Tile: what a kernel drives --------------------------------------------------------------------------------------

// Called where a functor does not consume its accumulator exactly once; that there is no such function is the error.
extern "C" __device__ void blasdx_a_functor_makes_exactly_one_consuming_call();

class Accumulator;

// The tile at work in this CTA. All threads of the block construct it, make the same calls, and leave together.
class Tile {
 public:
  __device__ __forceinline__ Tile(u8* smem, const Source& source)
      : source(source), storage{shared_address(smem)}, warp(threadIdx.x / 32), leader(elect_one()) {
    if (warp == kTmaLoadWarp && leader) {
      tma_prefetch_map(source.a_map);
      tma_prefetch_map(source.b_map);
      initialise_barriers(storage);
    }
    if (warp == kMmaIssueWarp) {
      tmem_alloc(storage.tmem_handle(), kTmemColumns);
      tmem_relinquish_alloc_permit();
    }
    tcgen05_fence_before_thread_sync();
    __syncthreads();
    tcgen05_fence_after_thread_sync();
    tmem = load_shared(storage.tmem_handle());
  }
  Tile(const Tile&) = delete;

  __device__ __forceinline__ ~Tile() {
    tcgen05_fence_before_thread_sync();
    __syncthreads();
    tcgen05_fence_after_thread_sync();
    if (warp == kMmaIssueWarp) {
      tmem_dealloc(tmem, kTmemColumns);
    }
  }

  // Points to another tile; Pipeline::reset_tile calls it.
  __device__ void point(Coordinate a, Coordinate b, u32 k_blocks) {
    source.a = a;
    source.b = b;
    source.k_blocks = k_blocks;
  }

  // Calls body(tile); on other paths once in each role.
  template <typename Body>
  __device__ __forceinline__ void specialise(Body body) {
    body(*this);
  }

  // A * B of this tile; then functor(accumulator) on the epilogue threads, while the other roles go on.
  template <typename Functor>
  __device__ __forceinline__ void execute(Functor functor);

  // Finishes the accumulation; then functor(accumulator) on the epilogue threads.
  template <typename Functor>
  __device__ __forceinline__ void epilogue(Accumulator& accumulator, Functor functor);

 private:
  friend class Accumulator;

  // Whether this warp multiplies.
  __device__ bool multiplies() const { return warp == kMmaIssueWarp; }
  __device__ u32 accumulator() const { return tmem + acc.stage * kAccColumns; }

  // The tile's K loop, in the roles that load and multiply.
  __device__ __forceinline__ void multiply() {
    if (warp == kTmaLoadWarp && leader) {
      tma_load(storage, source, loads);
    }
    if (multiplies()) {
      if (!held) {
        mbarrier_wait(storage.acc_empty(acc.stage), acc.phase ^ 1);
        tcgen05_fence_after_thread_sync();
      }
      mma_issue(storage, source.k_blocks, accumulator(), fresh, leader, products);
    }
    held = true;
    fresh = fresh && source.k_blocks == 0;
  }

  // Commits what was multiplied to acc_full[acc]; what comes next has the next accumulator.
  __device__ __forceinline__ void finish() {
    if (multiplies()) {
      if (leader) {
        tcgen05_commit(storage.acc_full(acc.stage));
      }
      acc.advance();
    }
    held = false;
    fresh = true;
  }

  Source source;
  Storage storage;
  u32 warp;
  bool leader;
  u32 tmem;
  Ring<kDepth> loads;        // of the thread that loads
  Ring<kDepth> products;     // of the warp that multiplies
  Ring<kAccStages> acc;      // of the same
  Ring<kAccStages> results;  // of the epilogue threads
  bool fresh = true;  // nothing has been multiplied into the accumulator
  bool held = false;  // the accumulator's stage is waited for
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

// One element of the accumulator.
__device__ Value accumulated(u32 bits) {
  return __uint_as_float(bits);
}

// Output elements come and go in 32-bit words.
constexpr u32 kPerWord = 4 / sizeof(Output);

__device__ u32 pack(const Value* value) {
  return __float_as_uint(value[0]);
}

__device__ void unpack(u32 word, Value* value) {
  value[0] = __uint_as_float(word);
}

// A run is read and written in vectors where every run starts on a multiple of their size, the same for all threads.
constexpr u32 kVectorWords = 4;
using Vector = uint4;

template <typename T>
__device__ bool is_vectorizable(const MemoryTile<T>& tile) { return tile.is_aligned_to(sizeof(Vector)); }

// Reads kRun elements of one row, of which only those inside count.
template <typename T>
__device__ __forceinline__ void read_run(const MemoryTile<T>& tile, Index at, bool vectors, Value (&run)[kRun]) {
  alignas(16) u32 words[kRun / kPerWord] = {};
  const T* line = tile[at];
  const u32 inside = tile.inside(at);
  if (vectors && inside >= kRun) {
#pragma unroll
    for (u32 i = 0; i < kRun / kPerWord; i += kVectorWords) {
      reinterpret_cast<Vector&>(words[i]) = reinterpret_cast<const Vector&>(line[i * kPerWord]);
    }
  } else {
#pragma unroll
    for (u32 i = 0; i < kRun; ++i) {
      if (i < inside) {
        words[i / kPerWord] |= static_cast<u32>(line[i]) << i % kPerWord * 8 * sizeof(T);
      }
    }
  }
#pragma unroll
  for (u32 i = 0; i < kRun; i += kPerWord) {
    unpack(words[i / kPerWord], run + i);
  }
}

// Stores kRun elements of one row, and nothing outside.
template <typename T>
__device__ __forceinline__ void write_run(const MemoryTile<T>& tile, Index at, bool vectors, const Value (&run)[kRun]) {
  alignas(16) u32 words[kRun / kPerWord];
#pragma unroll
  for (u32 i = 0; i < kRun; i += kPerWord) {
    words[i / kPerWord] = pack(run + i);
  }
  T* line = tile[at];
  const u32 inside = tile.inside(at);
  if (vectors && inside >= kRun) {
#pragma unroll
    for (u32 i = 0; i < kRun / kPerWord; i += kVectorWords) {
      reinterpret_cast<Vector&>(line[i * kPerWord]) = reinterpret_cast<const Vector&>(words[i]);
    }
  } else {
#pragma unroll
    for (u32 i = 0; i < kRun; ++i) {
      if (i < inside) {
        line[i] = static_cast<T>(words[i / kPerWord] >> i % kPerWord * 8 * sizeof(T));
      }
    }
  }
}
// Consuming calls wait acc_full[acc], read the accumulator from tensor memory chunk by chunk and arrive on acc_empty[acc].
// Every epilogue thread makes exactly one of them a tile.
class Accumulator {
 public:
  __device__ bool is_thread_active() const { return tile.warp < kEpilogueWarps; }

  // Where a thread's i-th element lies in the tile.
  __device__ Index map_fragment_index(u32 i) const {
    const Index at = corner(i / kRun * kChunk);
    return {at.row + threadIdx.x % kWarpRows, at.column + threadIdx.x % 32 / kWarpRows * kRun + i % kRun};
  }

  // Consumes: f(run, old, row, column) changes a run of results that begins there, given what `c` holds in its place (zeros
  // unless `reads_c`); stores them.
  template <typename T, typename C, typename Function>
  __device__ __forceinline__ void store(const MemoryTile<T>& out, const MemoryTile<C>& c, bool reads_c, Function f) {
    const bool vectors = is_vectorizable(out) && (!reads_c || is_vectorizable(c));
    const auto finish = [&](Value (&run)[kRun], u32 first) {
      const Index at = map_fragment_index(first);
      if (reads_c) {
        Value old[kRun];
        read_run(c, at, vectors, old);
        f(run, old, at.row, at.column);
      } else {
        const Value none[kRun] = {};
        f(run, none, at.row, at.column);
      }
      write_run(out, at, vectors, run);
    };
    consume<false>(finish);
  }

 private:
  friend class Tile;
  __device__ explicit Accumulator(Tile& tile) : tile(tile) {}

  // Where the warp's part of the accumulator's columns from `column` on begins in the tile.
  __device__ static Index corner(u32 column) {
    const u32 block = column / kBlockColumns * kBlockRows;
    // 64 rows fill lanes 0-15 of each quarter of 32; two threads share a row, the upper one its right half of each chunk.
    return {block + threadIdx.x / 32 * 16, column % kBlockColumns};
  }

  // Waits acc_full[acc]; where the warp's part of the accumulator is.
  __device__ __forceinline__ u32 acquire() {
    if (consumed) {
      blasdx_a_functor_makes_exactly_one_consuming_call();
    }
    consumed = true;
    mbarrier_wait(tile.storage.acc_full(tile.results.stage), tile.results.phase);
    tcgen05_fence_after_thread_sync();
    return tile.tmem + (threadIdx.x / 32 * 32 << 16) + tile.results.stage * kAccColumns;
  }

  // Arrives on acc_empty[acc]; everything is loaded.
  __device__ __forceinline__ void release() {
    tcgen05_fence_before_thread_sync();
    mbarrier_arrive(tile.storage.acc_empty(tile.results.stage));
  }

  // Reads a run; whole warps.
  __device__ __forceinline__ void load(u32 columns, Value (&run)[kRun]) {
    __syncwarp();  // what came before may have parted them
    u32 bits[kRun];
    tmem_load_16x32bx2_x16(columns, bits);
#pragma unroll
    for (u32 i = 0; i < kRun; ++i) {
      run[i] = accumulated(bits[i]);
    }
  }

  template <bool kUnroll, typename Visit>
  __device__ __forceinline__ void consume(Visit visit) {
    const u32 accumulator = acquire();
#pragma unroll(kUnroll ? kAccColumns / kChunk : 1)
    for (u32 chunk = 0; chunk < kAccColumns / kChunk; ++chunk) {
      Value run[kRun];
      load(accumulator + chunk * kChunk, run);
      if (chunk + 1 == kAccColumns / kChunk) {
        release();
      }
      visit(run, chunk * kRun);
    }
    tile.results.advance();
  }

  Tile& tile;
  bool consumed = false;
};

template <typename Functor>
__device__ __forceinline__ void Tile::execute(Functor functor) {
  multiply();
  Accumulator accumulator(*this);
  epilogue(accumulator, functor);
}

template <typename Functor>
__device__ __forceinline__ void Tile::epilogue(Accumulator& accumulator, Functor functor) {
  finish();
  if (accumulator.is_thread_active()) {
    functor(accumulator);
    if (!accumulator.consumed) {
      blasdx_a_functor_makes_exactly_one_consuming_call();
    }
    accumulator.consumed = false;
  }
}

// ---- Pipeline: where a kernel begins ---------------------------------------------------------------------------------

struct Pipeline {
  const TensorMap& a_map;
  const TensorMap& b_map;
  u32 k;  // extent of the problem

  static constexpr u32 max_threads_per_block = kThreads;
  __host__ __device__ static constexpr u32 buffer_alignment() { return 1024; }
  __host__ __device__ static constexpr u32 buffer_size() { return 204900; }

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
  __device__ MemoryTile<Output> out_tile(Place at) const {
    return {out, out_ld, out_batch, m, n, at.row * kTileM, at.column * kTileN, at.batch};
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

  // Makes results of the sums in `value`, a run that begins at (row, column) of the tile;
  // `c` is what C holds there, zeros where beta is zero.
  __device__ __forceinline__ void operator()(Value (&value)[kRun], const Value (&c)[kRun], u32 row, u32 column) const {
    if (problem.alpha == 1 && problem.beta == 0) {
      return;  // A * B as it is
    }
#pragma unroll
    for (u32 i = 0; i < kRun; ++i) {
      value[i] = problem.alpha * value[i] + problem.beta * c[i];
    }
  }
};

// ---- Kernel ----------------------------------------------------------------------------------------------------------

extern "C" __global__ void __launch_bounds__(Pipeline::max_threads_per_block, 1)
blasdx_gemm_bf16_bf16_f32_192x128x64_nn_d5_sm_103a(
    const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map,
    const __grid_constant__ Problem problem) {
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
        const auto out = problem.out_tile(at);
        accumulator.store(out, problem.c_tile(at), problem.beta != 0, Epilogue{problem, at});
      });
    }
  });
}
