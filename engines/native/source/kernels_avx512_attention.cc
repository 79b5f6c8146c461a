// Attention kernels for AVX-512.
#include <immintrin.h>

#include "attention_kernels.h"

namespace specdec {
namespace {

struct Avx512 {
  using F = __m512;
  static constexpr size_t kWidth = 16, kRows = 6;
  static constexpr size_t vectors(size_t) { return 4; }

  static F set(float x) { return _mm512_set1_ps(x); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F min(F a, F b) { return _mm512_min_ps(a, b); }
  static F abs(F a) { return _mm512_abs_ps(a); }
  static F round(F a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F times_power_of_two(F a, F n) { return _mm512_scalef_ps(a, n); }
  static F zero_where_below(F a, F x, float limit) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, set(limit), _CMP_NLT_UQ), a);
  }
  static F select_below(F x, float limit, F below, F other) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, set(limit), _CMP_LT_OQ), other, below);
  }
  static F copy_sign(F size, F sign) {
    const __m512i bit = _mm512_set1_epi32(INT32_MIN);
    return _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(size), _mm512_and_si512(_mm512_castps_si512(sign), bit)));
  }
  static float first(F a) { return _mm512_cvtss_f32(a); }
  static float reduce_max(F a) {
    const __m256 b = _mm256_max_ps(_mm512_castps512_ps256(a), high(a));
    const __m128 c = _mm_max_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    const __m128 d = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
  }
  static float reduce_add(F a) {
    const __m256 b = _mm256_add_ps(_mm512_castps512_ps256(a), high(a));
    const __m128 c = _mm_add_ps(_mm256_castps256_ps128(b), _mm256_extractf128_ps(b, 1));
    const __m128 d = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
  }
  static F widen(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static void narrow(F a, uint16_t* p) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
  }
  // Columns of [16, 4]: four rows of each group of four are brought into one vector, then transposed within lanes.
  static void transpose4(const float* from, size_t stride, float* to, size_t to_stride) {
    const F a = quarters(from, stride), b = quarters(from + stride, stride), c = quarters(from + 2 * stride, stride),
            d = quarters(from + 3 * stride, stride);
    const F ab = _mm512_unpacklo_ps(a, b), cd = _mm512_unpacklo_ps(c, d), AB = _mm512_unpackhi_ps(a, b),
            CD = _mm512_unpackhi_ps(c, d);
    store(to, _mm512_shuffle_ps(ab, cd, 0x44));
    store(to + to_stride, _mm512_shuffle_ps(ab, cd, 0xee));
    store(to + 2 * to_stride, _mm512_shuffle_ps(AB, CD, 0x44));
    store(to + 3 * to_stride, _mm512_shuffle_ps(AB, CD, 0xee));
  }

 private:
  static __m256 high(F a) { return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1)); }
  // Four values each of rows 0, 4, 8 and 12.
  static F quarters(const float* from, size_t stride) {
    F a = _mm512_castps128_ps512(_mm_loadu_ps(from));
    a = _mm512_mask_broadcast_f32x4(a, 0x00f0, _mm_loadu_ps(from + 4 * stride));
    a = _mm512_mask_broadcast_f32x4(a, 0x0f00, _mm_loadu_ps(from + 8 * stride));
    return _mm512_mask_broadcast_f32x4(a, 0xf000, _mm_loadu_ps(from + 12 * stride));
  }
};

}  // namespace

const AttentionKernels& attention_avx512() {
  static constexpr AttentionKernels kernels = attention_kernels<Avx512>();
  return kernels;
}

}  // namespace specdec
