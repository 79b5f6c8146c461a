// Functions over the vectors of the vec_*.h included before, by the polynomials of the Cephes library.
#pragma once

namespace {

// e^x with x held in -87..88: two float roundings.
INLINE V exponential(V x) {
  x = max(min(x, set(88.0f)), set(-87.0f));
  V whole = round(mul(x, set(1.44269504089f)));
  V f = fma(whole, set(-0.693359375f), x);
  f = fma(whole, set(2.12194440e-4f), f);
  V p = fma(set(1.9875691500e-4f), f, set(1.3981999507e-3f));
  p = fma(p, f, set(8.3334519073e-3f));
  p = fma(p, f, set(4.1665795894e-2f));
  p = fma(p, f, set(1.6666665459e-1f));
  p = fma(p, f, set(5.0000001201e-1f));
  return scale2(fma(mul(f, f), p, add(f, set(1.0f))), whole);
}

}  // namespace
