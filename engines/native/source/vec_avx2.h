// Vectors of 8 floats with AVX2, F16C and FMA; dot products of bytes with AVX-VNNI where the file has it.
#pragma once
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#define INLINE inline __attribute__((always_inline))

namespace {

using V = __m256;
constexpr int W = 8;
constexpr int kDirectRows = 3;
constexpr int kTileRows = 6;
constexpr int kTileVectors = 2;
constexpr int kDotRows = 4;

INLINE V zero() { return _mm256_setzero_ps(); }
INLINE V set(float x) { return _mm256_set1_ps(x); }
INLINE V load(const float* p) { return _mm256_loadu_ps(p); }
INLINE V load(const uint16_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
INLINE void store(float* p, V v) { _mm256_storeu_ps(p, v); }
INLINE V add(V a, V b) { return _mm256_add_ps(a, b); }
INLINE V mul(V a, V b) { return _mm256_mul_ps(a, b); }
INLINE V divide(V a, V b) { return _mm256_div_ps(a, b); }
INLINE V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
INLINE V max(V a, V b) { return _mm256_max_ps(a, b); }
INLINE V min(V a, V b) { return _mm256_min_ps(a, b); }
INLINE V abs(V a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
INLINE V round(V a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
INLINE V scale2(V a, V whole) {  // whole in -126..127
  __m256i e = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(whole), _mm256_set1_epi32(127)), 23);
  return _mm256_mul_ps(a, _mm256_castsi256_ps(e));
}
INLINE V sign_of(V magnitude, V sign) {
  return _mm256_or_ps(magnitude, _mm256_and_ps(sign, _mm256_set1_ps(-0.0f)));
}
INLINE int32_t sum(__m256i v) {
  __m128i x = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  x = _mm_add_epi32(x, _mm_shuffle_epi32(x, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(x, _mm_shuffle_epi32(x, 0xb1)));
}
INLINE float sum(V a) {
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
INLINE float largest(V a) {
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}
INLINE void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

INLINE int32_t to_bytes(V a, int8_t* to) {
  __m256i v = _mm256_cvtps_epi32(a);
  __m128i s = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packs_epi16(s, s));
  return sum(v);
}

struct D {
  __m256i v[2];
};
INLINE D integers(int32_t x) { return {{_mm256_set1_epi32(x), _mm256_set1_epi32(x)}}; }
INLINE __m256i raw(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
INLINE D integers(const int32_t* p) { return {{raw(p), raw(p + 8)}}; }
INLINE D multiply(D a, D b) { return {{_mm256_mullo_epi32(a.v[0], b.v[0]), _mm256_mullo_epi32(a.v[1], b.v[1])}}; }
INLINE D add(D a, D b) { return {{_mm256_add_epi32(a.v[0], b.v[0]), _mm256_add_epi32(a.v[1], b.v[1])}}; }
INLINE void to_floats(const D& d, V* out) {
  out[0] = _mm256_cvtepi32_ps(d.v[0]);
  out[1] = _mm256_cvtepi32_ps(d.v[1]);
}
struct Weights {
  __m256i v[2];
#if !defined(__AVXVNNI__)
  __m256i size[2];  // |v|, for 8 bits: products of unsigned with signed bytes must not saturate
  bool is_signed;
#endif
};
INLINE __m256i nibble(__m256i v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }

#if defined(__AVXVNNI__)
constexpr int kWeightOffset8 = 0;
INLINE Weights weights8(const uint8_t* p) { return {{raw(p), raw(p + 32)}}; }
INLINE void weights4(const uint8_t* p, Weights* low, Weights* high) {
  __m256i a = raw(p), b = raw(p + 32);
  *low = {{nibble(a), nibble(b)}};
  *high = {{nibble(_mm256_srli_epi16(a, 4)), nibble(_mm256_srli_epi16(b, 4))}};
}
INLINE D dot(D sums, const Weights& w, int32_t four) {
  __m256i x = _mm256_set1_epi32(four);
  return {{_mm256_dpbusd_avx_epi32(sums.v[0], w.v[0], x), _mm256_dpbusd_avx_epi32(sums.v[1], w.v[1], x)}};
}
#else
constexpr int kWeightOffset8 = 128;  // 128 * 127 * 2 fits 16 bits, 255 * 127 * 2 does not
INLINE Weights weights8(const uint8_t* p) {
  __m256i flip = _mm256_set1_epi8(-128), a = _mm256_xor_si256(raw(p), flip), b = _mm256_xor_si256(raw(p + 32), flip);
  return {{a, b}, {_mm256_abs_epi8(a), _mm256_abs_epi8(b)}, true};
}
INLINE void weights4(const uint8_t* p, Weights* low, Weights* high) {
  __m256i a = raw(p), b = raw(p + 32);
  *low = {{nibble(a), nibble(b)}, {}, false};
  *high = {{nibble(_mm256_srli_epi16(a, 4)), nibble(_mm256_srli_epi16(b, 4))}, {}, false};
}
INLINE D dot(D sums, const Weights& w, int32_t four) {
  __m256i x = _mm256_set1_epi32(four), ones = _mm256_set1_epi16(1);
  for (int i = 0; i < 2; i++) {
    __m256i pairs = w.is_signed ? _mm256_maddubs_epi16(w.size[i], _mm256_sign_epi8(x, w.v[i])) : _mm256_maddubs_epi16(w.v[i], x);
    sums.v[i] = _mm256_add_epi32(sums.v[i], _mm256_madd_epi16(pairs, ones));
  }
  return sums;
}
#endif

}  // namespace
