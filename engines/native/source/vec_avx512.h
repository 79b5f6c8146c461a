// Vectors of 16 floats and dot products of bytes with AVX-512 and VNNI.
#pragma once
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#define INLINE inline __attribute__((always_inline))

namespace {

using V = __m512;
constexpr int W = 16;            // floats in V
constexpr int kDirectRows = 12;  // rows of one tile that widens the weights as it reads them
constexpr int kTileRows = 12;    // rows and vectors of columns of a tile over widened weights
constexpr int kTileVectors = 2;
constexpr int kDotRows = 8;      // rows of a tile of bytes

INLINE V zero() { return _mm512_setzero_ps(); }
INLINE V set(float x) { return _mm512_set1_ps(x); }
INLINE V load(const float* p) { return _mm512_loadu_ps(p); }
INLINE V load(const uint16_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
INLINE void store(float* p, V v) { _mm512_storeu_ps(p, v); }
INLINE V add(V a, V b) { return _mm512_add_ps(a, b); }
INLINE V mul(V a, V b) { return _mm512_mul_ps(a, b); }
INLINE V divide(V a, V b) { return _mm512_div_ps(a, b); }
INLINE V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
INLINE V max(V a, V b) { return _mm512_max_ps(a, b); }
INLINE V min(V a, V b) { return _mm512_min_ps(a, b); }
INLINE V abs(V a) { return _mm512_abs_ps(a); }
INLINE V round(V a) { return _mm512_roundscale_ps(a, 0); }
INLINE V scale2(V a, V whole) { return _mm512_scalef_ps(a, whole); }  // a * 2^whole
INLINE V sign_of(V magnitude, V sign) {
  __m512i mask = _mm512_set1_epi32(INT32_MIN);
  return _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(magnitude), _mm512_and_si512(_mm512_castps_si512(sign), mask)));
}
INLINE float sum(V a) { return _mm512_reduce_add_ps(a); }
INLINE float largest(V a) { return _mm512_reduce_max_ps(a); }
INLINE void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

// Rounds W values (of at most 127) to bytes at to; returns their sum.
INLINE int32_t to_bytes(V a, int8_t* to) {
  __m512i v = _mm512_cvtps_epi32(a);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtsepi32_epi8(v));
  return _mm512_reduce_add_epi32(v);
}

// Sixteen 32-bit sums, and the weights of 16 outputs for four k.
using D = __m512i;
using Weights = __m512i;
constexpr int kWeightOffset8 = 0;  // what the byte of an 8-bit weight loses before its product
INLINE D integers(int32_t x) { return _mm512_set1_epi32(x); }
INLINE D integers(const int32_t* p) { return _mm512_loadu_si512(p); }
INLINE D multiply(D a, D b) { return _mm512_mullo_epi32(a, b); }
INLINE D add(D a, D b) { return _mm512_add_epi32(a, b); }
INLINE Weights weights8(const uint8_t* p) { return _mm512_loadu_si512(p); }
INLINE void weights4(const uint8_t* p, Weights* low, Weights* high) {
  __m512i v = _mm512_loadu_si512(p), mask = _mm512_set1_epi8(15);
  *low = _mm512_and_si512(v, mask);
  *high = _mm512_and_si512(_mm512_srli_epi16(v, 4), mask);
}
INLINE D dot(D sums, const Weights& w, int32_t four) { return _mm512_dpbusd_epi32(sums, w, _mm512_set1_epi32(four)); }
INLINE void to_floats(const D& d, V* out) { out[0] = _mm512_cvtepi32_ps(d); }

}  // namespace
