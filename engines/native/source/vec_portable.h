// Vectors of 4 floats and dot products of bytes in plain C++, in the shape of the other vec_*.h.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#define INLINE inline __attribute__((always_inline))

namespace {

constexpr int W = 4;
constexpr int kDirectRows = 3;
constexpr int kTileRows = 4;
constexpr int kTileVectors = 2;
constexpr int kDotRows = 2;

struct V {
  float v[W];
};
template <class F>
INLINE V each(F f) {
  V r;
  for (int i = 0; i < W; i++) r.v[i] = f(i);
  return r;
}
INLINE V zero() { return V{}; }
INLINE V set(float x) { return each([&](int) { return x; }); }
INLINE V load(const float* p) { return each([&](int i) { return p[i]; }); }
INLINE V load(const uint16_t* p) {
  return each([&](int i) {
    int exponent = p[i] >> 10 & 31, mantissa = p[i] & 1023;
    float value = exponent == 31  ? (mantissa ? NAN : INFINITY)
                  : exponent == 0 ? std::ldexp(float(mantissa), -24)
                                  : std::ldexp(float(mantissa + 1024), exponent - 25);
    return p[i] & 0x8000 ? -value : value;
  });
}
INLINE void store(float* p, V a) { memcpy(p, a.v, sizeof a.v); }
INLINE V add(V a, V b) { return each([&](int i) { return a.v[i] + b.v[i]; }); }
INLINE V mul(V a, V b) { return each([&](int i) { return a.v[i] * b.v[i]; }); }
INLINE V divide(V a, V b) { return each([&](int i) { return a.v[i] / b.v[i]; }); }
INLINE V fma(V a, V b, V c) { return each([&](int i) { return a.v[i] * b.v[i] + c.v[i]; }); }
INLINE V max(V a, V b) { return each([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; }); }
INLINE V min(V a, V b) { return each([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; }); }
INLINE V abs(V a) { return each([&](int i) { return std::fabs(a.v[i]); }); }
INLINE V round(V a) { return each([&](int i) { return std::nearbyint(a.v[i]); }); }
INLINE V scale2(V a, V whole) { return each([&](int i) { return std::ldexp(a.v[i], int(whole.v[i])); }); }
INLINE V sign_of(V magnitude, V sign) { return each([&](int i) { return std::copysign(magnitude.v[i], sign.v[i]); }); }
INLINE float sum(V a) { return (a.v[0] + a.v[1]) + (a.v[2] + a.v[3]); }
INLINE float largest(V a) { return std::fmax(std::fmax(a.v[0], a.v[1]), std::fmax(a.v[2], a.v[3])); }
INLINE void prefetch(const void*) {}

INLINE int32_t to_bytes(V a, int8_t* to) {
  int32_t total = 0;
  for (int i = 0; i < W; i++) total += to[i] = int8_t(std::nearbyint(a.v[i]));
  return total;
}

struct D {
  int32_t v[16];
};
struct Weights {
  uint8_t v[64];
};
constexpr int kWeightOffset8 = 0;
INLINE D integers(int32_t x) {
  D d;
  for (int32_t& v : d.v) v = x;
  return d;
}
INLINE D integers(const int32_t* p) {
  D d;
  memcpy(d.v, p, sizeof d.v);
  return d;
}
INLINE D multiply(D a, D b) {
  for (int i = 0; i < 16; i++) a.v[i] *= b.v[i];
  return a;
}
INLINE D add(D a, D b) {
  for (int i = 0; i < 16; i++) a.v[i] += b.v[i];
  return a;
}
INLINE void to_floats(const D& d, V* out) {
  for (int i = 0; i < 16; i++) out[i / W].v[i % W] = float(d.v[i]);
}
INLINE Weights weights8(const uint8_t* p) {
  Weights w;
  memcpy(w.v, p, 64);
  return w;
}
INLINE void weights4(const uint8_t* p, Weights* low, Weights* high) {
  for (int i = 0; i < 64; i++) {
    low->v[i] = p[i] & 15;
    high->v[i] = p[i] >> 4;
  }
}
INLINE D dot(D sums, const Weights& w, int32_t four) {
  int8_t x[4];
  memcpy(x, &four, 4);
  for (int i = 0; i < 64; i++) sums.v[i / 4] += int32_t(w.v[i]) * x[i % 4];
  return sums;
}

}  // namespace
