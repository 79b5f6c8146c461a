// Attention kernels for ARM64 with NEON, whose base set converts FP16.
#include "vec_neon.h"

namespace {

constexpr size_t tile_vectors(size_t) { return 4; }

INLINE float lane0(V a) { return vgetq_lane_f32(a, 0); }
INLINE float total(V a) {  // in the order of the other instruction sets
  const float32x2_t b = vadd_f32(vget_low_f32(a), vget_high_f32(a));
  return vget_lane_f32(b, 0) + vget_lane_f32(b, 1);
}
INLINE V where_below(V x, float limit, V below, V other) { return vbslq_f32(vcltq_f32(x, set(limit)), below, other); }
INLINE void narrow4(V a, uint16_t* p) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(a))); }

// Columns of [4, 4].
INLINE void transpose4(const float* from, size_t stride, float* to, size_t to_stride) {
  const V a = load(from), b = load(from + stride), c = load(from + 2 * stride), d = load(from + 3 * stride);
  const float64x2_t ab = vreinterpretq_f64_f32(vtrn1q_f32(a, b)), AB = vreinterpretq_f64_f32(vtrn2q_f32(a, b)),
                    cd = vreinterpretq_f64_f32(vtrn1q_f32(c, d)), CD = vreinterpretq_f64_f32(vtrn2q_f32(c, d));
  store(to, vreinterpretq_f32_f64(vtrn1q_f64(ab, cd)));
  store(to + to_stride, vreinterpretq_f32_f64(vtrn1q_f64(AB, CD)));
  store(to + 2 * to_stride, vreinterpretq_f32_f64(vtrn2q_f64(ab, cd)));
  store(to + 3 * to_stride, vreinterpretq_f32_f64(vtrn2q_f64(AB, CD)));
}

}  // namespace

#include "attention_kernels.h"

const specdec::AttentionKernels specdec::attention_neon = kAttentionKernels;
