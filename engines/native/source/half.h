// One FP16 value to FP32, for the few values that no vector reads.
#pragma once
#include <cstdint>
#include <cstring>

namespace specdec {

inline float half_to_float(uint16_t h) {
  uint32_t sign = (h & 0x8000u) << 16, exponent = h >> 10 & 31, mantissa = h & 1023, bits;
  float value;
  if (exponent == 31) {
    bits = sign | 0x7f800000u | mantissa << 13;
  } else if (exponent) {
    bits = sign | (exponent + 112) << 23 | mantissa << 13;
  } else {
    value = static_cast<float>(mantissa) * 5.9604644775390625e-8f;  // 2^-24
    memcpy(&bits, &value, 4);
    bits |= sign;
  }
  memcpy(&value, &bits, 4);
  return value;
}

}  // namespace specdec
