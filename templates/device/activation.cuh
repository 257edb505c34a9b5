// NaN where one of the two is NaN, as in the instruction's name.
__device__ __forceinline__ float minimum(float x, float y) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
  return result;
}

__device__ __forceinline__ double minimum(double x, double y) { return x < y || x != x ? x : y; }

// NaN where one of the two is NaN, as in the instruction's name.
__device__ __forceinline__ float maximum(float x, float y) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
  return result;
}

__device__ __forceinline__ double maximum(double x, double y) { return x > y || x != x ? x : y; }

__device__ __forceinline__ float absolute(float x) { return fabsf(x); }

__device__ __forceinline__ double absolute(double x) { return fabs(x); }

// max(x, 0), and NaN of NaN.
__device__ __forceinline__ float relu(float x) { return maximum(x, 0.0f); }

__device__ __forceinline__ double relu(double x) { return maximum(x, 0.0); }

// 2^x to 2 units in the last place, 0 where that is subnormal (PTX ISA 9.7.3.20).
__device__ __forceinline__ float exp2_approx(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// 1 / (1 + e^-x), to a relative error of (8 + |x|) 2^-23.
__device__ __forceinline__ float sigmoid(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(1.0f + exp2_approx(x * -1.4426950f)));
  return result;
}

// x sigmoid(x), to the same relative error.
__device__ __forceinline__ float silu(float x) { return x * sigmoid(x); }

// x Phi(x), Phi being the distribution function of the normal distribution, to an absolute error of 2^-22 |x|.
__device__ __forceinline__ float gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678f)); }

// gelu with the tanh of sqrt(2 / pi) (x + 0.044715 x^3) in place of erf, to an absolute error of 2^-22 |x|.
__device__ __forceinline__ float gelu_tanh(float x) {
  return 0.5f * x * (1.0f + tanhf(x * (0.79788456f + 0.035677408f * x * x)));
}

// max(x, 0) - |x| Phi(-|x|), the logarithm of Phi(-|x|) being close to a polynomial: to a relative error of 2^-11 for x >
// -5.5, and to an absolute one of 2^-20 below.
__device__ __forceinline__ float gelu_rough(float x) {
  const float size = fminf(fabsf(x), 16.0f);
  float log = -0.00024119556f;
  log = log * size + 0.0049882564f;
  log = log * size - 0.04523871f;
  log = log * size - 0.46818125f;
  log = log * size - 1.1476754f;
  log = log * size - 1.0f;
  return relu(x) - size * exp2_approx(log);
}

// To a relative error of 2^-11 (PTX ISA 9.7.3.21).
__device__ __forceinline__ float tanh_rough(float x) {
  float result;
  asm("tanh.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// gelu_tanh, to an absolute error of 2^-12 |x|.
__device__ __forceinline__ float gelu_tanh_rough(float x) {
  const float half = 0.5f * x;
  return half + half * tanh_rough(x * (0.79788456f + 0.035677408f * x * x));
}
