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

// Two floats, rounded to nearest even and to the largest number where they are larger; NaN stays NaN. The first in the low half.
__device__ __forceinline__ u16 pack_e4m3(float first, float second) {
  u16 packed;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(second), "f"(first));
  return packed;
}

// Two floats, rounded to nearest even and to the largest number where they are larger; NaN stays NaN. The first in the low half.
__device__ __forceinline__ u16 pack_e5m2(float first, float second) {
  u16 packed;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(second), "f"(first));
  return packed;
}

// Two integers, those beyond the type taken to its ends, the first in the low byte.
__device__ __forceinline__ u16 saturate_s8(int first, int second) {
  u32 packed;
  asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, 0;" : "=r"(packed) : "r"(second), "r"(first));
  return static_cast<u16>(packed);
}

// Two integers, those beyond the type taken to its ends, the first in the low byte.
__device__ __forceinline__ u16 saturate_u8(int first, int second) {
  u32 packed;
  asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, 0;" : "=r"(packed) : "r"(second), "r"(first));
  return static_cast<u16>(packed);
}

// Two numbers, rounded to nearest even and saturated, the first in the low byte; NaN becomes 0.
__device__ __forceinline__ u16 pack_s8(float first, float second) {
  return saturate_s8(__float2int_rn(first), __float2int_rn(second));
}

// Doubles: NaN becomes -128.
__device__ __forceinline__ u16 pack_s8(double first, double second) {
  return saturate_s8(__double2int_rn(first), __double2int_rn(second));
}

// Two numbers, rounded to nearest even and saturated, the first in the low byte; NaN becomes 0.
__device__ __forceinline__ u16 pack_u8(float first, float second) {
  return saturate_u8(__float2int_rn(first), __float2int_rn(second));
}

__device__ __forceinline__ u16 pack_u8(double first, double second) {
  return saturate_u8(__double2int_rn(first), __double2int_rn(second));
}

__device__ __forceinline__ float unpack_bf16(u16 value) { return __uint_as_float(static_cast<u32>(value) << 16); }

__device__ __forceinline__ float unpack_f16(u16 value) {
  float unpacked;
  asm("cvt.f32.f16 %0, %1;" : "=f"(unpacked) : "h"(value));
  return unpacked;
}

__device__ __forceinline__ float unpack_e4m3(u8 value) {
  u32 halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<u16>(value)));
  return unpack_f16(static_cast<u16>(halves));
}

__device__ __forceinline__ float unpack_e5m2(u8 value) { return unpack_f16(static_cast<u16>(value << 8)); }

__device__ __forceinline__ int unpack_s8(u8 value) { return static_cast<signed char>(value); }

__device__ __forceinline__ int unpack_u8(u8 value) { return value; }

__device__ __forceinline__ float round_to_bf16(float x) { return unpack_bf16(static_cast<u16>(pack_bf16(x, 0.0f))); }

__device__ __forceinline__ float round_to_f16(float x) { return unpack_f16(static_cast<u16>(pack_f16(x, 0.0f))); }

__device__ __forceinline__ float round_to_e4m3(float x) { return unpack_e4m3(static_cast<u8>(pack_e4m3(x, 0.0f))); }

__device__ __forceinline__ float round_to_e5m2(float x) { return unpack_e5m2(static_cast<u8>(pack_e5m2(x, 0.0f))); }

// T is float or double, which is what is computed in.
template <typename T>
__device__ __forceinline__ T round_to_s8(T x) {
  return static_cast<signed char>(pack_s8(x, T(0)));
}

template <typename T>
__device__ __forceinline__ T round_to_u8(T x) {
  return static_cast<u8>(pack_u8(x, T(0)));
}
