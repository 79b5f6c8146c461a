// Attention kernels for AVX2 with FMA and F16C.
#include "vec_avx2.h"

namespace {

constexpr size_t tile_vectors(size_t rows) { return rows <= 2 ? 4 : 2; }  // sixteen registers

INLINE float lane0(V a) { return _mm256_cvtss_f32(a); }
INLINE float total(V a) { return sum(a); }
INLINE V where_below(V x, float limit, V below, V other) {
  return _mm256_blendv_ps(other, below, _mm256_cmp_ps(x, set(limit), _CMP_LT_OQ));
}
INLINE void narrow4(V a, uint16_t* p) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

INLINE V halves(const float* from, size_t stride) {
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(from)), _mm_loadu_ps(from + 4 * stride), 1);
}
// Columns of [8, 4]: rows r and r + 4 go into one vector, whose lanes are then transposed.
INLINE void transpose4(const float* from, size_t stride, float* to, size_t to_stride) {
  const V a = halves(from, stride), b = halves(from + stride, stride), c = halves(from + 2 * stride, stride),
          d = halves(from + 3 * stride, stride);
  const V ab = _mm256_unpacklo_ps(a, b), cd = _mm256_unpacklo_ps(c, d), AB = _mm256_unpackhi_ps(a, b),
          CD = _mm256_unpackhi_ps(c, d);
  store(to, _mm256_shuffle_ps(ab, cd, 0x44));
  store(to + to_stride, _mm256_shuffle_ps(ab, cd, 0xee));
  store(to + 2 * to_stride, _mm256_shuffle_ps(AB, CD, 0x44));
  store(to + 3 * to_stride, _mm256_shuffle_ps(AB, CD, 0xee));
}

}  // namespace

#include "attention_kernels.h"

const specdec::AttentionKernels specdec::attention_avx2 = kAttentionKernels;
