// Fixed-width names for the integer types a kernel counts and addresses with.
using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

// A TMA tensor map: 128 opaque bytes, passed by value as a __grid_constant__ parameter (PTX ISA 5.5.8).
struct alignas(64) TensorMap {
  u8 opaque[128];
};
