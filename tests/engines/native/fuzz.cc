// Random products through every table of kernels that this processor runs, with buffers of exactly
// the sizes that kernels.h states, against sums in double. Built with sanitizers; prints the count.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>

#include "half.h"
#include "isa.h"
#include "kernels.h"

using namespace specdec;

namespace {
std::mt19937 random_bits(1);
size_t between(size_t first, size_t last) { return first + random_bits() % (last - first + 1); }
double uniform() { return random_bits() / 2147483648.0 - 1.0; }

template <class T>
using Buffer = std::unique_ptr<T[]>;
template <class T, class F>
Buffer<T> fill(size_t count, F value) {
  Buffer<T> to(new T[count]);
  for (size_t i = 0; i < count; i++) to[i] = T(value());
  return to;
}
Buffer<float> floats(size_t count) { return fill<float>(count, uniform); }
// Sign, a small exponent and any mantissa: 2^-8 to 1.
uint16_t random_half() { return uint16_t((random_bits() & 0x83ffu) | (7 + random_bits() % 8) << 10); }

double activate(double x, Activation kind) {
  switch (kind) {
    case Activation::kSilu: return x / (1 + std::exp(-x));
    case Activation::kGelu: return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::kGeluTanh: return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kNone: break;
  }
  return x;
}

void stop(const Kernels& table, const char* what, size_t m, size_t n, size_t k, double got, double want) {
  std::printf("%s %s: m %zu n %zu k %zu: %.9g, not %.9g\n", table.name, what, m, n, k, got, want);
  std::exit(1);
}

// Random things around a product, and the check of its result from sums (row, output) in double.
struct Around {
  size_t m = between(1, 40), n = between(1, 80), panels;
  Activation activation = Activation(between(0, 3));
  bool gated = activation != Activation::kNone;
  Buffer<float> bias = between(0, 1) ? floats(n * (gated ? 2 : 1)) : nullptr;
  Buffer<float> residual = between(0, 1) ? floats(m * n) : nullptr;
  Buffer<float> c = floats(m * n);
  Output out() { return {c.get(), bias.get(), residual.get(), n, activation}; }

  // Runs panels in two parts and rows in two parts, as threads do.
  template <class Run>
  void parts(size_t columns, const Run& run) {
    panels = (n + columns - 1) / columns;
    size_t p = between(0, panels), r = between(0, m);
    size_t ps[] = {0, p, panels}, rs[] = {0, r, m};
    for (int i = 0; i < 2; i++)
      for (int q = 0; q < 2; q++)
        if (ps[i] < ps[i + 1] && rs[q] < rs[q + 1]) run(ps[i], ps[i + 1], rs[q], rs[q + 1]);
  }
  template <class Sum>
  void check(const Kernels& table, const char* what, size_t columns, size_t k, const Sum& sum) {
    for (size_t r = 0; r < m; r++)
      for (size_t j = 0; j < n; j++) {
        size_t panel = j / columns, column = j % columns;
        double want = sum(r, gated ? 2 * panel : panel, column) + (bias ? bias[j] : 0.0f);
        if (gated) want = activate(want, activation) * (sum(r, 2 * panel + 1, column) + (bias ? bias[n + j] : 0.0f));
        if (residual) want += residual[r * n + j];
        double got = c[r * n + j];
        if (!(std::fabs(got - want) <= 1e-4 * (1 + std::fabs(want)))) stop(table, what, m, n, k, got, want);
      }
  }
  size_t all_panels(size_t columns) const { return (n + columns - 1) / columns * (gated ? 2 : 1); }
};

void fp16(const Kernels& table) {
  Around w;
  size_t k = between(1, between(0, 3) ? 70 : 500);
  auto a = floats(w.m * k);
  auto b = fill<uint16_t>(w.all_panels(kFp16Columns) * k * kFp16Columns, random_half);
  Fp16Job job{a.get(), b.get(), k, w.out()};
  w.parts(kFp16Columns, [&](size_t p0, size_t p1, size_t r0, size_t r1) {
    if (!table.fp16(job, p0, p1, r0, r1)) std::exit(2);
  });
  w.check(table, "fp16", kFp16Columns, k, [&](size_t r, size_t panel, size_t column) {
    double s = 0;
    for (size_t i = 0; i < k; i++) s += double(a[r * k + i]) * half_to_float(b[(panel * k + i) * kFp16Columns + column]);
    return s;
  });
}

void blocks(const Kernels& table) {
  Around w;
  bool four = between(0, 1), half = between(0, 1), zeros = between(0, 1);
  size_t block = size_t(32) << between(0, 2), count = between(1, 4), k = block * count;
  size_t panels = w.all_panels(kBlockColumns), bytes = block / (four ? 2 : 1), groups = bytes / 4;
  auto x = floats(w.m * k);
  Buffer<int8_t> q(new int8_t[w.m * k]);
  Buffer<float> scale(new float[w.m * count]);
  Buffer<int32_t> sum(new int32_t[w.m * count]);
  for (size_t r = 0; r < w.m; r++)
    table.quantize(x.get() + r * k, k, block, four, q.get() + r * k, scale.get() + r * count, sum.get() + r * count);
  auto b = fill<uint8_t>(panels * count * bytes * kBlockColumns, [] { return random_bits(); });
  auto s32 = fill<float>(half ? 0 : panels * count * kBlockColumns, [] { return 0.01 + 0.01 * uniform(); });
  auto s16 = fill<uint16_t>(half ? panels * count * kBlockColumns : 0, [] { return 0x2000 + random_bits() % 1024; });
  size_t zero_rows = four ? (count + 1) / 2 : count;
  auto z = zeros ? fill<uint8_t>(panels * zero_rows * kBlockColumns, [] { return random_bits(); }) : nullptr;
  const void* s = half ? static_cast<const void*>(s16.get()) : s32.get();
  BlocksJob job{q.get(), scale.get(), sum.get(), b.get(), s, z.get(), k, block, four, half, w.out()};
  w.parts(kBlockColumns, [&](size_t p0, size_t p1, size_t r0, size_t r1) {
    if (!table.blocks(job, p0, p1, r0, r1)) std::exit(2);
  });
  w.check(table, four ? "4-bit" : "8-bit", kBlockColumns, k, [&](size_t r, size_t panel, size_t column) {
    double total = 0;
    for (size_t i = 0; i < k; i++) {
      size_t in = i % block, at = i / block, byte = four ? in / 2 : in;
      int value = b[(((panel * count + at) * groups + byte / 4) * kBlockColumns + column) * 4 + byte % 4];
      if (four) value = value >> (in % 2 ? 4 : 0) & 15;
      int zero = four ? 8 : 128;
      if (z) zero = z[(panel * zero_rows + (four ? at / 2 : at)) * kBlockColumns + column];
      if (z && four) zero = zero >> (at % 2 ? 4 : 0) & 15;
      size_t where = (panel * count + at) * kBlockColumns + column;
      double step = half ? half_to_float(s16[where]) : s32[where];
      size_t put = four ? i / 8 * 8 + i % 8 / 2 + (i % 2 ? 4 : 0) : i;
      double width = scale[r * count + at], rounded = q[r * k + put] * width;
      if (!(std::fabs(rounded - x[r * k + i]) <= 0.50001 * width)) stop(table, "quantize", 1, 1, k, rounded, x[r * k + i]);
      total += (value - zero) * step * rounded;
    }
    return total;
  });
}

void norm(const Kernels& table) {
  size_t k = between(1, 100);
  auto x = floats(k), gamma = floats(k);
  Buffer<float> y(new float[k]);
  table.norm(x.get(), gamma.get(), 1e-5f, k, y.get());
  double squares = 0;
  for (size_t i = 0; i < k; i++) squares += double(x[i]) * x[i];
  for (size_t i = 0; i < k; i++) {
    double want = x[i] / std::sqrt(squares / double(k) + 1e-5) * gamma[i];
    if (!(std::fabs(y[i] - want) <= 1e-5)) stop(table, "norm", 1, 1, k, y[i], want);
  }
}
}  // namespace

int main(int, char** arguments) {
  int rounds = std::atoi(arguments[1]);
  const Kernels* tables[3] = {};
  int count = 0;
#if defined(__x86_64__)
  if (has(Isa::kAvx512)) tables[count++] = &kernels_avx512;
  if (has(Isa::kAvx2Vnni)) tables[count++] = &kernels_avx2vnni;
  if (has(Isa::kAvx2)) tables[count++] = &kernels_avx2;
#elif defined(__aarch64__)
  if (has(Isa::kNeon)) tables[count++] = &kernels_neon;
#endif
  for (int i = 0; i < rounds; i++)
    for (int t = 0; t < count; t++) {
      fp16(*tables[t]);
      blocks(*tables[t]);
      norm(*tables[t]);
    }
  for (int t = 0; t < count; t++) std::printf("%s%s", t ? " " : "", tables[t]->name);
  std::printf("\n");
}
