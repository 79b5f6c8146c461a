// Attention kernels for AVX-512.
#include "vec_avx512.h"

namespace {

constexpr size_t tile_vectors(size_t) { return 4; }

INLINE float lane0(V a) { return _mm512_cvtss_f32(a); }
INLINE float total(V a) { return sum(a); }
INLINE V where_below(V x, float limit, V below, V other) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, set(limit), _CMP_LT_OQ), other, below);
}
INLINE void narrow4(V a, uint16_t* p) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

// Four values each of rows 0, 4, 8 and 12.
INLINE V quarters(const float* from, size_t stride) {
  V a = _mm512_castps128_ps512(_mm_loadu_ps(from));
  a = _mm512_mask_broadcast_f32x4(a, 0x00f0, _mm_loadu_ps(from + 4 * stride));
  a = _mm512_mask_broadcast_f32x4(a, 0x0f00, _mm_loadu_ps(from + 8 * stride));
  return _mm512_mask_broadcast_f32x4(a, 0xf000, _mm_loadu_ps(from + 12 * stride));
}
// Columns of [16, 4]: every fourth row goes into one vector, whose lanes are then transposed.
INLINE void transpose4(const float* from, size_t stride, float* to, size_t to_stride) {
  const V a = quarters(from, stride), b = quarters(from + stride, stride), c = quarters(from + 2 * stride, stride),
          d = quarters(from + 3 * stride, stride);
  const V ab = _mm512_unpacklo_ps(a, b), cd = _mm512_unpacklo_ps(c, d), AB = _mm512_unpackhi_ps(a, b),
          CD = _mm512_unpackhi_ps(c, d);
  store(to, _mm512_shuffle_ps(ab, cd, 0x44));
  store(to + to_stride, _mm512_shuffle_ps(ab, cd, 0xee));
  store(to + 2 * to_stride, _mm512_shuffle_ps(AB, CD, 0x44));
  store(to + 3 * to_stride, _mm512_shuffle_ps(AB, CD, 0xee));
}

}  // namespace

#include "attention_kernels.h"

const specdec::AttentionKernels specdec::attention_avx512 = kAttentionKernels;
