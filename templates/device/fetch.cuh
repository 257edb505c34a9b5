// kCount elements, of which kAdjacent are neighbours and the next come kStep further on; neighbours are `step` apart in
// memory, and the first `inside` of the line exist. They are read in vectors of up to 16 bytes where they lie side by side,
// the first one's address allows it and all exist.
template <u32 kAdjacent, u32 kStep, u32 kCount, typename T>
__device__ __forceinline__ void fetch_run(T (&run)[kCount], const T* line, u64 step, u32 inside) {
  constexpr u32 kBytes = kAdjacent * sizeof(T);
  constexpr u32 kVector = kBytes % 16 == 0 ? 16 : kBytes % 8 == 0 ? 8 : kBytes % 4 == 0 ? 4 : kBytes % 2 == 0 ? 2 : 1;
  struct alignas(kVector) Vector {
    T element[kVector / sizeof(T)];
  };
  constexpr u32 kEnd = (kCount / kAdjacent - 1) * kStep + kAdjacent;
  if (step == 1 && inside >= kEnd && reinterpret_cast<u64>(line) % kVector == 0) {
#pragma unroll
    for (u32 i = 0; i < kCount; i += kVector / sizeof(T)) {
      const Vector vector = *reinterpret_cast<const Vector*>(line + i / kAdjacent * kStep + i % kAdjacent);
#pragma unroll
      for (u32 j = 0; j < kVector / sizeof(T); ++j) {
        run[i + j] = vector.element[j];
      }
    }
  } else {
#pragma unroll
    for (u32 i = 0; i < kCount; ++i) {
      const u32 at = i / kAdjacent * kStep + i % kAdjacent;
      run[i] = at < inside ? line[at * step] : T(0);
    }
  }
}

// The same in pairs of narrow elements, the first of a pair in its lower half.
template <u32 kAdjacent, u32 kStep, u32 kPairs, typename Pair, typename T>
__device__ __forceinline__ void fetch_pairs(Pair (&pairs)[kPairs], const T* line, u64 step, u32 inside) {
  static_assert(sizeof(Pair) == 2 * sizeof(T) && kAdjacent % 2 == 0);
  constexpr u32 kEnd = (2 * kPairs / kAdjacent - 1) * kStep + kAdjacent;
  if (step == 1 && inside >= kEnd && reinterpret_cast<u64>(line) % sizeof(Pair) == 0) {
    fetch_run<kAdjacent / 2, kStep / 2>(pairs, reinterpret_cast<const Pair*>(line), 1, inside / 2);
  } else {
#pragma unroll
    for (u32 i = 0; i < kPairs; ++i) {
      const u32 at = 2 * i / kAdjacent * kStep + 2 * i % kAdjacent;
      const Pair low = at < inside ? line[at * step] : T(0);
      const Pair high = at + 1 < inside ? line[(at + 1) * step] : T(0);
      pairs[i] = low | high << 8 * sizeof(T);
    }
  }
}

// What belongs to a run, two columns of every 8, out of what the lanes of the warp hold: lane l columns 64 j + 2 l and the
// next. Four lanes have the run's columns between them, lane 0 from column `first` on, which is a multiple of 8.
template <u32 kCount, u32 kHeld, typename T>
__device__ __forceinline__ void spread_run(T (&run)[kCount], const T (&held)[kHeld], u32 first) {
#pragma unroll
  for (u32 i = 0; i < kCount; ++i) {
    const u32 column = first + i / 2 * 8;
    run[i] = __shfl_sync(0xffffffff, held[column / 64 * 2 + i % 2], column % 64 / 2 + threadIdx.x % 4);
  }
}

// The same of pairs of narrow elements.
template <u32 kPairs, u32 kHeld, typename Pair>
__device__ __forceinline__ void spread_pairs(Pair (&pairs)[kPairs], const Pair (&held)[kHeld], u32 first) {
#pragma unroll
  for (u32 i = 0; i < kPairs; ++i) {
    const u32 column = first + i * 8;
    pairs[i] = __shfl_sync(0xffffffff, static_cast<u32>(held[column / 64]), column % 64 / 2 + threadIdx.x % 4);
  }
}
