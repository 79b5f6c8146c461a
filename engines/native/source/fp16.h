// Products over FP16 panels, over the vectors of the vec_*.h included before. Few rows: one pass
// that widens the weights as it reads them. More: a part of the panel is widened once into the
// first cache and every tile of rows takes it from there.
#pragma once
#include "rows.h"
#include "scratch.h"

namespace {

constexpr size_t kAhead = 2048;    // bytes between a load of weights and its prefetch
constexpr size_t kWideDepth = 192;  // k of a widened part: 24 KiB
constexpr size_t kColumns = kFp16Columns;

// R rows x C vectors of columns: t = (first ? 0 : t) + a x b. T: uint16_t in memory, float widened.
// ahead: read into the cache on the way, step bytes each k.
template <int R, int C, int U, class T>
INLINE void tile(const float* a, size_t lda, size_t k, const T* b, float* t, bool first, const char* ahead, size_t step) {
  V sums[U][R][C];
  for (int u = 0; u < U; u++)
    for (int r = 0; r < R; r++)
      for (int c = 0; c < C; c++) sums[u][r][c] = first || u ? zero() : load(t + r * kColumns + c * W);
  size_t i = 0;
  for (; i + U <= k; i += U)
#pragma GCC unroll 4
    for (int u = 0; u < U; u++) {
      const T* w = b + (i + u) * kColumns;
      prefetch(ahead + (i + u) * step);
      V weights[C];
#pragma GCC unroll 8
      for (int c = 0; c < C; c++) weights[c] = load(w + c * W);
#pragma GCC unroll 12
      for (int r = 0; r < R; r++) {
        V x = set(a[r * lda + i + u]);
#pragma GCC unroll 8
        for (int c = 0; c < C; c++) sums[u][r][c] = fma(x, weights[c], sums[u][r][c]);
      }
    }
  for (; i < k; i++)
    for (int r = 0; r < R; r++)
      for (int c = 0; c < C; c++) sums[0][r][c] = fma(set(a[r * lda + i]), load(b + i * kColumns + c * W), sums[0][r][c]);
#pragma GCC unroll 12
  for (int r = 0; r < R; r++)
#pragma GCC unroll 8
    for (int c = 0; c < C; c++) {
#pragma GCC unroll 4
      for (int u = 1; u < U; u++) sums[0][r][c] = add(sums[0][r][c], sums[u][r][c]);
      store(t + r * kColumns + c * W, sums[0][r][c]);
    }
}

// The tile of exactly rows rows, 1 to R.
template <int R, int C, class T>
__attribute__((noinline)) void tiles(size_t rows, const float* a, size_t lda, size_t k, const T* b, float* t, bool first,
                                     const char* ahead, size_t step) {
  // Enough independent sums to cover the latency of an FMA, as many as registers hold.
  constexpr int kUnroll = R * C <= 4 ? 4 : R * C <= 12 && kDirectRows * kColumns / W > 12 ? 2 : 1;
  if constexpr (R > 1)
    if (rows < R) return tiles<R - 1, C, T>(rows, a, lda, k, b, t, first, ahead, step);
  tile<R, C, kUnroll, T>(a, lda, k, b, t, first, ahead, step);
}

// t[m][32] = m rows of a x one panel; wide: kWideDepth x 32 floats.
INLINE void panel(const float* a, size_t m, size_t k, const uint16_t* b, float* wide, float* t) {
  constexpr int kVectors = kColumns / W;
  constexpr size_t kStep = kColumns * sizeof(uint16_t);
  if (m <= kDirectRows)
    return tiles<kDirectRows, kVectors, uint16_t>(m, a, k, k, b, t, true, reinterpret_cast<const char*>(b) + kAhead, kStep);
  size_t parts = (k + kWideDepth - 1) / kWideDepth, blocks = (m + kTileRows - 1) / kTileRows;
  for (size_t part = 0; part < parts; part++) {
    size_t k0 = k * part / parts, depth = k * (part + 1) / parts - k0;
    const uint16_t* from = b + k0 * kColumns;
    for (size_t i = 0; i < depth * kColumns; i += kColumns) {
#pragma GCC unroll 8
      for (int c = 0; c < kVectors; c++) store(wide + i + c * W, load(from + i + c * W));
    }
    const char* next = reinterpret_cast<const char*>(from + depth * kColumns);  // of this panel or the one after
    for (size_t q = 0; q < blocks; q++) {
      size_t row = m * q / blocks, rows = m * (q + 1) / blocks - row;
      for (int c = 0; c < kVectors; c += kTileVectors)
        tiles<kTileRows, kTileVectors, float>(rows, a + row * k + k0, k, depth, wide + c * W, t + row * kColumns + c * W, part == 0,
                                              next, q == 0 && c == 0 ? kStep : 0);
    }
  }
}

bool fp16(const Fp16Job& job, size_t first, size_t last, size_t row0, size_t row1) {
  static thread_local Scratch scratch;
  bool gated = job.out.activation != Activation::kNone;
  size_t m = row1 - row0;
  float* wide = scratch.take<float>(kWideDepth * kColumns + 2 * m * kColumns);
  if (!wide) return false;
  float *sums = wide + kWideDepth * kColumns, *up = sums + m * kColumns;
  const float* a = job.a + row0 * job.k;
  for (size_t p = first; p < last; p++) {
    const uint16_t* b = job.b + (gated ? 2 * p : p) * job.k * kColumns;
    panel(a, m, job.k, b, wide, sums);
    if (gated) panel(a, m, job.k, b + job.k * kColumns, wide, up);
    finish(job.out, p * kColumns, kColumns, row0, row1, sums, gated ? up : nullptr);
  }
  return true;
}

}  // namespace
