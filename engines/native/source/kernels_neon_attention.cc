// Attention kernels for ARM64 with NEON, whose base set converts FP16.
#include <arm_neon.h>

#include "attention_kernels.h"

namespace specdec {
namespace {

struct Neon {
  using F = float32x4_t;
  static constexpr size_t kWidth = 4, kRows = 6;
  static constexpr size_t vectors(size_t) { return 4; }

  static F set(float x) { return vdupq_n_f32(x); }
  static F load(const float* p) { return vld1q_f32(p); }
  static void store(float* p, F x) { vst1q_f32(p, x); }
  static F add(F a, F b) { return vaddq_f32(a, b); }
  static F sub(F a, F b) { return vsubq_f32(a, b); }
  static F mul(F a, F b) { return vmulq_f32(a, b); }
  static F div(F a, F b) { return vdivq_f32(a, b); }
  static F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
  static F max(F a, F b) { return vmaxq_f32(a, b); }
  static F min(F a, F b) { return vminq_f32(a, b); }
  static F abs(F a) { return vabsq_f32(a); }
  static F round(F a) { return vrndnq_f32(a); }
  static F times_power_of_two(F a, F n) {
    const int32x4_t exponent = vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127));
    return mul(a, vreinterpretq_f32_s32(vshlq_n_s32(exponent, 23)));
  }
  static F zero_where_below(F a, F x, float limit) {
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(a), vcltq_f32(x, set(limit))));
  }
  static F select_below(F x, float limit, F below, F other) { return vbslq_f32(vcltq_f32(x, set(limit)), below, other); }
  static F copy_sign(F size, F sign) { return vbslq_f32(vdupq_n_u32(0x80000000u), sign, size); }
  static float first(F a) { return vgetq_lane_f32(a, 0); }
  static float reduce_max(F a) { return vmaxvq_f32(a); }
  static float reduce_add(F a) {  // in the order of the other instruction sets
    const float32x2_t b = vadd_f32(vget_low_f32(a), vget_high_f32(a));
    return vget_lane_f32(b, 0) + vget_lane_f32(b, 1);
  }
  static F widen(const uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
  static void narrow(F a, uint16_t* p) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(a))); }
  static void transpose4(const float* from, size_t stride, float* to, size_t to_stride) {
    const F a = load(from), b = load(from + stride), c = load(from + 2 * stride), d = load(from + 3 * stride);
    const float64x2_t ab = vreinterpretq_f64_f32(vtrn1q_f32(a, b)), AB = vreinterpretq_f64_f32(vtrn2q_f32(a, b)),
                      cd = vreinterpretq_f64_f32(vtrn1q_f32(c, d)), CD = vreinterpretq_f64_f32(vtrn2q_f32(c, d));
    store(to, vreinterpretq_f32_f64(vtrn1q_f64(ab, cd)));
    store(to + to_stride, vreinterpretq_f32_f64(vtrn1q_f64(AB, CD)));
    store(to + 2 * to_stride, vreinterpretq_f32_f64(vtrn2q_f64(ab, cd)));
    store(to + 3 * to_stride, vreinterpretq_f32_f64(vtrn2q_f64(AB, CD)));
  }
};

}  // namespace

const AttentionKernels& attention_neon() {
  static constexpr AttentionKernels kernels = attention_kernels<Neon>();
  return kernels;
}

}  // namespace specdec
