// Vectors of 4 floats and dot products of bytes with NEON (ARMv8.2 dot products).
#pragma once
#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

#define INLINE inline __attribute__((always_inline))

namespace {

using V = float32x4_t;
constexpr int W = 4;
constexpr int kDirectRows = 2;
constexpr int kTileRows = 6;
constexpr int kTileVectors = 4;
constexpr int kDotRows = 4;

INLINE V zero() { return vdupq_n_f32(0.0f); }
INLINE V set(float x) { return vdupq_n_f32(x); }
INLINE V load(const float* p) { return vld1q_f32(p); }
INLINE V load(const uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
INLINE void store(float* p, V v) { vst1q_f32(p, v); }
INLINE V add(V a, V b) { return vaddq_f32(a, b); }
INLINE V mul(V a, V b) { return vmulq_f32(a, b); }
INLINE V divide(V a, V b) { return vdivq_f32(a, b); }
INLINE V fma(V a, V b, V c) { return vfmaq_f32(c, a, b); }
INLINE V max(V a, V b) { return vmaxq_f32(a, b); }
INLINE V min(V a, V b) { return vminq_f32(a, b); }
INLINE V abs(V a) { return vabsq_f32(a); }
INLINE V round(V a) { return vrndnq_f32(a); }
INLINE V scale2(V a, V whole) {  // whole in -126..127
  return vmulq_f32(a, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(whole), vdupq_n_s32(127)), 23)));
}
INLINE V sign_of(V magnitude, V sign) { return vbslq_f32(vdupq_n_u32(0x80000000u), sign, magnitude); }
INLINE float sum(V a) { return vaddvq_f32(a); }
INLINE float largest(V a) { return vmaxvq_f32(a); }
INLINE void prefetch(const void* p) { __builtin_prefetch(p); }

INLINE int32_t to_bytes(V a, int8_t* to) {
  int32x4_t v = vcvtnq_s32_f32(a);
  int8x8_t bytes = vqmovn_s16(vcombine_s16(vqmovn_s32(v), vdup_n_s16(0)));
  vst1_lane_s32(reinterpret_cast<int32_t*>(to), vreinterpret_s32_s8(bytes), 0);
  return vaddvq_s32(v);
}

struct D {
  int32x4_t v[4];
};
struct Weights {
  int8x16_t v[4];
};
constexpr int kWeightOffset8 = 128;
INLINE D integers(int32_t x) {
  int32x4_t v = vdupq_n_s32(x);
  return {{v, v, v, v}};
}
INLINE D integers(const int32_t* p) { return {{vld1q_s32(p), vld1q_s32(p + 4), vld1q_s32(p + 8), vld1q_s32(p + 12)}}; }
INLINE D multiply(D a, D b) {
  for (int i = 0; i < 4; i++) a.v[i] = vmulq_s32(a.v[i], b.v[i]);
  return a;
}
INLINE D add(D a, D b) {
  for (int i = 0; i < 4; i++) a.v[i] = vaddq_s32(a.v[i], b.v[i]);
  return a;
}
INLINE void to_floats(const D& d, V* out) {
  for (int i = 0; i < 4; i++) out[i] = vcvtq_f32_s32(d.v[i]);
}
INLINE Weights weights8(const uint8_t* p) {
  Weights w;
  for (int i = 0; i < 4; i++) w.v[i] = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(p + 16 * i), vdupq_n_u8(128)));
  return w;
}
INLINE void weights4(const uint8_t* p, Weights* low, Weights* high) {
  for (int i = 0; i < 4; i++) {
    uint8x16_t v = vld1q_u8(p + 16 * i);
    low->v[i] = vreinterpretq_s8_u8(vandq_u8(v, vdupq_n_u8(15)));
    high->v[i] = vreinterpretq_s8_u8(vshrq_n_u8(v, 4));
  }
}
INLINE D dot(D sums, const Weights& w, int32_t four) {
  int8x16_t x = vreinterpretq_s8_s32(vdupq_n_s32(four));
  for (int i = 0; i < 4; i++) sums.v[i] = vdotq_s32(sums.v[i], w.v[i], x);
  return sums;
}

}  // namespace
