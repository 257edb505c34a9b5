// Two floats, rounded to nearest even, the first in the low half.
__device__ __forceinline__ u32 pack_bf16(float first, float second) {
  u32 packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(second), "f"(first));
  return packed;
}

// Two floats, rounded to nearest even, the first in the low half.
__device__ __forceinline__ u32 pack_f16(float first, float second) {
  u32 packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(second), "f"(first));
  return packed;
}

__device__ __forceinline__ float unpack_bf16(u16 value) { return __uint_as_float(static_cast<u32>(value) << 16); }

__device__ __forceinline__ float unpack_f16(u16 value) {
  float unpacked;
  asm("cvt.f32.f16 %0, %1;" : "=f"(unpacked) : "h"(value));
  return unpacked;
}
