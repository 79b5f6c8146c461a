// Products over 8-bit and 4-bit blocks, over the vectors of the vec_*.h included before: 32-bit sums
// of bytes within a block, floats between blocks.
#pragma once
#include "rows.h"
#include "scratch.h"

namespace {

constexpr int kParts = kBlockColumns / W;  // vectors of floats in a panel's 16 outputs
constexpr size_t kBytesAhead = 2048;

template <class T>
INLINE void load_scales(const void* p, size_t at, V* out) {
  for (int c = 0; c < kParts; c++) out[c] = load(static_cast<const T*>(p) + at + c * W);
}

// What -zero times the sum of the block's activations needs: the zero points less the offset.
template <bool kFour>
INLINE D zeros(const uint8_t* zero, size_t q) {
  int32_t z[kBlockColumns];
  for (size_t c = 0; c < kBlockColumns; c++)
    z[c] = kFour ? zero[q / 2 * kBlockColumns + c] >> (q & 1 ? 4 : 0) & 15 : zero[q * kBlockColumns + c] - kWeightOffset8;
  return integers(z);
}

// R rows x one panel -> t[R][16].
template <int R, bool kFour, class Scale>
INLINE void dots(const BlocksJob& job, size_t row, size_t p, float* t) {
  constexpr int U = R <= 2 ? 2 : 1;
  constexpr int32_t kZero = kFour ? 8 : 128 - kWeightOffset8;
  size_t blocks = job.k / job.block, bytes = job.block * (kFour ? 8 : 16);
  const uint8_t* b = job.b + p * blocks * bytes;
  const uint8_t* zero_points = job.zero ? job.zero + p * (kFour ? (blocks + 1) / 2 : blocks) * kBlockColumns : nullptr;
  V total[R][kParts];
  for (int r = 0; r < R; r++)
    for (int c = 0; c < kParts; c++) total[r][c] = zero();
  for (size_t q = 0; q < blocks; q++, b += bytes) {
    const int8_t* a = job.a + row * job.k + q * job.block;
    D sums[U][R];
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
      int32_t s = job.a_sum[(row + r) * blocks + q];
      sums[0][r] = zero_points ? multiply(zeros<kFour>(zero_points, q), integers(-s)) : integers(-kZero * s);
      if (U == 2) sums[1][r] = integers(0);
    }
#pragma GCC unroll 4
    for (size_t i = 0; i < bytes; i += 128) {
      prefetch(b + i + kBytesAhead);
      prefetch(b + i + kBytesAhead + 64);
#pragma GCC unroll 2
      for (int half = 0; half < 2; half++) {
        Weights low, high;
        size_t k = (i + 64 * half) / (kFour ? 8 : 16);
        if (kFour)
          weights4(b + i + 64 * half, &low, &high);
        else
          low = weights8(b + i + 64 * half);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
          int32_t x[2];
          __builtin_memcpy(x, a + r * job.k + k, kFour ? 8 : 4);
          sums[kFour ? 0 : half % U][r] = dot(sums[kFour ? 0 : half % U][r], low, x[0]);
          if (kFour) sums[U - 1][r] = dot(sums[U - 1][r], high, x[1]);
        }
      }
    }
    V scales[kParts];
    load_scales<Scale>(job.scale, (p * blocks + q) * kBlockColumns, scales);
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
      V values[kParts], x = set(job.a_scale[(row + r) * blocks + q]);
      to_floats(U == 2 ? add(sums[0][r], sums[U - 1][r]) : sums[0][r], values);
      for (int c = 0; c < kParts; c++) total[r][c] = fma(values[c], mul(scales[c], x), total[r][c]);
    }
  }
  for (int r = 0; r < R; r++)
    for (int c = 0; c < kParts; c++) store(t + r * kBlockColumns + c * W, total[r][c]);
}

template <int R, bool kFour, class Scale>
__attribute__((noinline)) void some(size_t rows, const BlocksJob& job, size_t row, size_t p, float* t) {
  if constexpr (R > 1)
    if (rows < R) return some<R - 1, kFour, Scale>(rows, job, row, p, t);
  dots<R, kFour, Scale>(job, row, p, t);
}

template <bool kFour, class Scale>
void some_panels(const BlocksJob& job, size_t first, size_t last, size_t row0, size_t row1) {
  bool gated = job.out.activation != Activation::kNone;
  size_t m = row1 - row0, tiles = (m + kDotRows - 1) / kDotRows;
  for (size_t p = first; p < last; p++)
    for (size_t q = 0; q < tiles; q++) {
      size_t row = row0 + m * q / tiles, end = row0 + m * (q + 1) / tiles;
      float sums[kDotRows * kBlockColumns], up[kDotRows * kBlockColumns];
      some<kDotRows, kFour, Scale>(end - row, job, row, gated ? 2 * p : p, sums);
      if (gated) some<kDotRows, kFour, Scale>(end - row, job, row, 2 * p + 1, up);
      finish(job.out, p * kBlockColumns, kBlockColumns, row, end, sums, gated ? up : nullptr);
    }
}

bool blocks(const BlocksJob& job, size_t first, size_t last, size_t row0, size_t row1) {
  auto run = job.four_bits ? (job.scale_fp16 ? some_panels<true, uint16_t> : some_panels<true, float>)
                           : (job.scale_fp16 ? some_panels<false, uint16_t> : some_panels<false, float>);
  run(job, first, last, row0, row1);
  return true;
}

}  // namespace
