// Attention kernels for AVX2 with FMA and F16C.
#include <immintrin.h>

#include "attention_kernels.h"

namespace specdec {
namespace {

struct Avx2 {
  using F = __m256;
  static constexpr size_t kWidth = 8, kRows = 6;
  static constexpr size_t vectors(size_t rows) { return rows <= 2 ? 4 : 2; }  // sixteen registers

  static F set(float x) { return _mm256_set1_ps(x); }
  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm256_max_ps(a, b); }
  static F min(F a, F b) { return _mm256_min_ps(a, b); }
  static F abs(F a) { return _mm256_andnot_ps(set(-0.0f), a); }
  static F round(F a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static F times_power_of_two(F a, F n) {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return mul(a, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
  }
  static F zero_where_below(F a, F x, float limit) {
    return _mm256_and_ps(a, _mm256_cmp_ps(x, set(limit), _CMP_NLT_UQ));
  }
  static F select_below(F x, float limit, F below, F other) {
    return _mm256_blendv_ps(other, below, _mm256_cmp_ps(x, set(limit), _CMP_LT_OQ));
  }
  static F copy_sign(F size, F sign) { return _mm256_or_ps(size, _mm256_and_ps(sign, set(-0.0f))); }
  static float first(F a) { return _mm256_cvtss_f32(a); }
  static float reduce_max(F a) {
    const __m128 c = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 d = _mm_max_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
  }
  static float reduce_add(F a) {
    const __m128 c = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 d = _mm_add_ps(c, _mm_movehl_ps(c, c));
    return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
  }
  static F widen(const uint16_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
  static void narrow(F a, uint16_t* p) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
  }
  // Columns of [8, 4]: rows r and r + 4 are brought into one vector, then transposed within lanes.
  static void transpose4(const float* from, size_t stride, float* to, size_t to_stride) {
    const F a = halves(from, stride), b = halves(from + stride, stride), c = halves(from + 2 * stride, stride),
            d = halves(from + 3 * stride, stride);
    const F ab = _mm256_unpacklo_ps(a, b), cd = _mm256_unpacklo_ps(c, d), AB = _mm256_unpackhi_ps(a, b),
            CD = _mm256_unpackhi_ps(c, d);
    store(to, _mm256_shuffle_ps(ab, cd, 0x44));
    store(to + to_stride, _mm256_shuffle_ps(ab, cd, 0xee));
    store(to + 2 * to_stride, _mm256_shuffle_ps(AB, CD, 0x44));
    store(to + 3 * to_stride, _mm256_shuffle_ps(AB, CD, 0xee));
  }

 private:
  static F halves(const float* from, size_t stride) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(from)), _mm_loadu_ps(from + 4 * stride), 1);
  }
};

}  // namespace

const AttentionKernels& attention_avx2() {
  static constexpr AttentionKernels kernels = attention_kernels<Avx2>();
  return kernels;
}

}  // namespace specdec
