// exp and tanh of scores, over the vectors of the vec_*.h included before.
#pragma once
#include "vec_math.h"

namespace {

INLINE V sub(V a, V b) { return add(a, mul(b, set(-1.0f))); }

// e^x, exactly zero below -87 (and at minus infinity): what a row does not see adds nothing. NaN stays NaN.
INLINE V exp_or_zero(V x) { return where_below(x, -87.0f, zero(), fma(x, zero(), exponential(x))); }

INLINE V tanh(V x) {
  const V size = abs(x), square = mul(x, x);
  V p = fma(set(-5.70498872745e-3f), square, set(2.06390887954e-2f));
  p = fma(p, square, set(-5.37397155531e-2f));
  p = fma(p, square, set(1.33314422036e-1f));
  p = fma(p, square, set(-3.33332819422e-1f));
  const V near = fma(mul(p, square), size, size);
  const V twice = min(set(88.0f), add(size, size));  // in this order NaN stays NaN
  const V far = sub(set(1.0f), divide(set(2.0f), add(exp_or_zero(twice), set(1.0f))));
  return sign_of(where_below(size, 0.625f, near, far), x);
}

}  // namespace
