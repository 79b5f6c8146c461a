// exp and tanh over a vector type, by the polynomials of the Cephes library (within 2 units of the last place).
#pragma once

namespace specdec {
namespace {

// exp of values up to 88; below -87 (and at minus infinity) zero.
template <class V>
inline typename V::F exp(typename V::F x) {
  const typename V::F n = V::round(V::mul(x, V::set(1.44269504088896341f)));
  typename V::F r = V::fma(n, V::set(-0.693359375f), x);
  r = V::fma(n, V::set(2.12194440e-4f), r);
  typename V::F p = V::set(1.9875691500e-4f);
  p = V::fma(p, r, V::set(1.3981999507e-3f));
  p = V::fma(p, r, V::set(8.3334519073e-3f));
  p = V::fma(p, r, V::set(4.1665795894e-2f));
  p = V::fma(p, r, V::set(1.6666665459e-1f));
  p = V::fma(p, r, V::set(5.0000001201e-1f));
  p = V::add(V::fma(p, V::mul(r, r), r), V::set(1));
  return V::zero_where_below(V::times_power_of_two(p, n), x, -87.0f);
}

template <class V>
inline typename V::F tanh(typename V::F x) {
  const typename V::F size = V::abs(x), square = V::mul(x, x);
  typename V::F p = V::set(-5.70498872745e-3f);
  p = V::fma(p, square, V::set(2.06390887954e-2f));
  p = V::fma(p, square, V::set(-5.37397155531e-2f));
  p = V::fma(p, square, V::set(1.33314422036e-1f));
  p = V::fma(p, square, V::set(-3.33332819422e-1f));
  const typename V::F near = V::fma(V::mul(p, square), size, size);
  const typename V::F twice = V::min(V::add(size, size), V::set(40));
  const typename V::F far = V::sub(V::set(1), V::div(V::set(2), V::add(exp<V>(twice), V::set(1))));
  return V::copy_sign(V::select_below(size, 0.625f, near, far), x);
}

}  // namespace
}  // namespace specdec
