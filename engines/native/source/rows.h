// Work on single rows, over the vectors of the vec_*.h included before: norm, quantization,
// activations, and the end of a product (bias, residual, gate). Everything in an anonymous
// namespace: each instruction set has its own copy.
#pragma once
#include "kernels.h"
#include "vec_math.h"

namespace {
using namespace specdec;

INLINE V sigmoid(V x) { return divide(set(1.0f), add(set(1.0f), exponential(mul(x, set(-1.0f))))); }

// Error function, Abramowitz and Stegun 7.1.26: within 2e-7.
INLINE V error_function(V x) {
  V a = abs(x), t = divide(set(1.0f), fma(set(0.3275911f), a, set(1.0f)));
  V p = fma(set(1.061405429f), t, set(-1.453152027f));
  p = fma(p, t, set(1.421413741f));
  p = fma(p, t, set(-0.284496736f));
  p = mul(fma(p, t, set(0.254829592f)), t);
  V e = exponential(mul(mul(a, a), set(-1.0f)));
  return sign_of(fma(mul(p, set(-1.0f)), e, set(1.0f)), x);
}

INLINE V activate(V x, Activation kind) {
  switch (kind) {
    case Activation::kSilu: return mul(x, sigmoid(x));
    case Activation::kGelu:
      return mul(mul(x, set(0.5f)), add(set(1.0f), error_function(mul(x, set(0.70710678f)))));
    case Activation::kGeluTanh: {
      V inner = mul(x, fma(mul(x, x), set(0.044715f * 1.5957691216f), set(1.5957691216f)));
      return mul(x, sigmoid(inner));
    }
    case Activation::kNone: break;
  }
  return x;
}

void norm(const float* x, const float* gamma, float epsilon, size_t k, float* y) {
  V total[2] = {zero(), zero()};
  float rest = 0.0f;
  size_t i = 0;
  for (; i + 2 * W <= k; i += 2 * W)
    for (int u = 0; u < 2; u++) {
      V v = load(x + i + u * W);
      total[u] = fma(v, v, total[u]);
    }
  for (; i < k; i++) rest += x[i] * x[i];
  float mean = (sum(add(total[0], total[1])) + rest) / static_cast<float>(k);
  float factor = 1.0f / __builtin_sqrtf(mean + epsilon);
  for (i = 0; i + W <= k; i += W) store(y + i, mul(mul(load(x + i), set(factor)), load(gamma + i)));
  for (; i < k; i++) y[i] = x[i] * factor * gamma[i];
}

void quantize(const float* x, size_t k, size_t block, bool four_bits, int8_t* q, float* scale, int32_t* sums) {
  for (size_t b = 0; b < k / block; b++, x += block, q += block) {
    V most = zero(), finite = zero();
    for (size_t i = 0; i < block; i += W) {
      V v = load(x + i);
      most = max(most, abs(v));
      finite = fma(v, zero(), finite);  // 0, or NaN where a value is not finite
    }
    float top = largest(most), nan = sum(finite), inverse = 127.0f / top;
    bool small = !(inverse < 3.0e38f) || nan != nan;  // all zero, below what a scale gives back, or not numbers
    int32_t total = 0;
    for (size_t i = 0; i < block; i += W) total += to_bytes(small ? zero() : mul(load(x + i), set(inverse)), q + i);
    scale[b] = (small ? 0.0f : top / 127.0f) + nan;
    sums[b] = total;
    if (four_bits)
      for (size_t i = 0; i < block; i += 8) {
        int8_t t[8];
        __builtin_memcpy(t, q + i, 8);
        for (int u = 0; u < 4; u++) {
          q[i + u] = t[2 * u];
          q[i + 4 + u] = t[2 * u + 1];
        }
      }
  }
}

// sums: rows of width values from output at; up: those of the other panel when gated.
INLINE void finish(const Output& o, size_t at, size_t width, size_t row0, size_t row1, const float* sums, const float* up) {
  size_t columns = o.n - at < width ? o.n - at : width;
  for (size_t r = row0; r < row1; r++, sums += width, up += up ? width : 0) {
    float* c = o.c + r * o.n + at;
    const float* residual = o.residual ? o.residual + r * o.n + at : nullptr;
    auto one = [&](size_t i, const float* bias, const float* up_bias, const float* more) {
      V v = load(sums + i);
      if (bias) v = add(v, load(bias));
      if (up) {
        V u = load(up + i);
        if (up_bias) u = add(u, load(up_bias));
        v = mul(activate(v, o.activation), u);
      }
      return more ? add(v, load(more)) : v;
    };
    size_t i = 0;
    for (; i + W <= columns; i += W)
      store(c + i, one(i, o.bias ? o.bias + at + i : nullptr, o.bias ? o.bias + o.n + at + i : nullptr, residual ? residual + i : nullptr));
    if (i < columns) {  // fewer than W are left: through copies
      float bias[W] = {}, up_bias[W] = {}, more[W] = {}, result[W];
      for (size_t q = 0; i + q < columns; q++) {
        if (o.bias) bias[q] = o.bias[at + i + q];
        if (o.bias && up) up_bias[q] = o.bias[o.n + at + i + q];
        if (residual) more[q] = residual[i + q];
      }
      store(result, one(i, bias, up_bias, more));
      for (size_t q = 0; i + q < columns; q++) c[i + q] = result[q];
    }
  }
}

}  // namespace
