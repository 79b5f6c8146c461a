// Small products in register tiles, over the vectors of the vec_*.h included before, which ask for coming memory as they
// go: scores are queries x keys, results weights x values.
#pragma once
#include <cstddef>

namespace {

constexpr size_t kWidth = W, kRows = 6;  // floats of a vector, rows of a register tile

// Lines that will be needed soon, asked for a few at each step of other work so that memory is never idle: first those
// of one stretch, then those of another.
struct Ahead {
  const char *next, *end, *then, *then_end;
  size_t rate;  // lines a step

  void pace(size_t bytes, size_t steps) { rate = (bytes / 64 + steps) / steps; }
  size_t left() const { return static_cast<size_t>(end - next) + static_cast<size_t>(then_end - then); }
  INLINE void step() {
    for (size_t i = 0; i < rate; i++) {
      if (next >= end) {
        if (then >= then_end) {
          rate = 0;
          return;
        }
        next = then;
        end = then_end;
        then = then_end;
      }
      __builtin_prefetch(next, 0, 2);
      next += 64;
    }
  }
};

// c [R, N vectors] = a [R, steps] x b [steps, N vectors], summed step by step; with alpha, c x alpha is added first.
template <size_t R, size_t N>
inline void tile(const float* a, size_t a_stride, const float* b, size_t b_stride, size_t steps, float* c,
                 size_t c_stride, const float* alpha, Ahead& ahead) {
  Ahead here = ahead;  // in registers
  V sum[R][N];
  for (size_t r = 0; r < R; r++)
    for (size_t n = 0; n < N; n++)
      sum[r][n] = alpha ? mul(load(c + r * c_stride + n * kWidth), set(alpha[r])) : set(0);
  for (size_t k = 0; k < steps; k++) {
    here.step();
    V column[N];
    for (size_t n = 0; n < N; n++) column[n] = load(b + k * b_stride + n * kWidth);
    for (size_t r = 0; r < R; r++) {
      const V x = set(a[r * a_stride + k]);
      for (size_t n = 0; n < N; n++) sum[r][n] = fma(x, column[n], sum[r][n]);
    }
  }
  for (size_t r = 0; r < R; r++)
    for (size_t n = 0; n < N; n++) store(c + r * c_stride + n * kWidth, sum[r][n]);
  ahead = here;
}

// The same for any number of columns (of whole vectors).
template <size_t R>
void tiles(const float* a, size_t a_stride, const float* b, size_t b_stride, size_t steps, float* c, size_t c_stride,
           size_t vectors, const float* alpha, Ahead& ahead) {
  constexpr size_t kMost = tile_vectors(R);
  size_t n = 0;
  for (; n + kMost <= vectors; n += kMost)
    tile<R, kMost>(a, a_stride, b + n * kWidth, b_stride, steps, c + n * kWidth, c_stride, alpha, ahead);
  if constexpr (kMost > 2)
    for (; n + 2 <= vectors; n += 2)
      tile<R, 2>(a, a_stride, b + n * kWidth, b_stride, steps, c + n * kWidth, c_stride, alpha, ahead);
  for (; n < vectors; n++)
    tile<R, 1>(a, a_stride, b + n * kWidth, b_stride, steps, c + n * kWidth, c_stride, alpha, ahead);
}

void product(size_t rows, const float* a, size_t a_stride, const float* b, size_t b_stride, size_t steps, float* c,
             size_t c_stride, size_t vectors, const float* alpha, Ahead& ahead) {
  static_assert(kRows == 6, "one case a number of rows");
  switch (rows) {
    case 6: return tiles<6>(a, a_stride, b, b_stride, steps, c, c_stride, vectors, alpha, ahead);
    case 5: return tiles<5>(a, a_stride, b, b_stride, steps, c, c_stride, vectors, alpha, ahead);
    case 4: return tiles<4>(a, a_stride, b, b_stride, steps, c, c_stride, vectors, alpha, ahead);
    case 3: return tiles<3>(a, a_stride, b, b_stride, steps, c, c_stride, vectors, alpha, ahead);
    case 2: return tiles<2>(a, a_stride, b, b_stride, steps, c, c_stride, vectors, alpha, ahead);
    default: return tiles<1>(a, a_stride, b, b_stride, steps, c, c_stride, vectors, alpha, ahead);
  }
}

}  // namespace
