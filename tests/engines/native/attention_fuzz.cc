// Random passes of attention against double precision, in memory of exactly the sizes that are named.
//
//   attention_fuzz SEED SECONDS: prints the passes run, exits with 1 at the first that is wrong. SPECDEC_NATIVE names
//   the instruction set. Compiled with sanitizers it finds what is read or written outside of the sizes.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "attention_pass.h"
#include "isa.h"
#include "kernels.h"

namespace specdec {  // isa.cc names the tables of products, which are not used here
#if defined(__x86_64__)
const Kernels kernels_avx512{}, kernels_avx2vnni{}, kernels_avx2{};
#else
const Kernels kernels_neon{};
#endif
const Kernels kernels_portable{};
}  // namespace specdec

namespace {
using namespace specdec;

std::mt19937_64 random_bits;
size_t upto(size_t most) { return random_bits() % (most + 1); }
bool often() { return upto(2) != 0; }

template <class T>
std::unique_ptr<T[]> exactly(const std::vector<T>& values) {
  std::unique_ptr<T[]> memory(new T[values.size()]);
  std::copy(values.begin(), values.end(), memory.get());
  return memory;
}
std::vector<float> normal(size_t count) {
  std::normal_distribution<float> draw;
  std::vector<float> values(count);
  for (float& value : values) value = draw(random_bits);
  return values;
}

// FP16, by its definition; values here are normal and in range.
uint16_t to_half(float value) {
  if (std::fabs(value) < 6.2e-5f) return 0;
  int exponent;
  const double fraction = std::frexp(std::fabs(value), &exponent);
  const auto digits = static_cast<int>(std::nearbyint(fraction * 2048));
  return static_cast<uint16_t>((value < 0 ? 0x8000 : 0) + ((exponent + 14) << 10) + digits - 1024);
}
double from_half(uint16_t h) {
  const int exponent = h >> 10 & 31, digits = h & 1023;
  const double size = exponent ? std::ldexp(1024 + digits, exponent - 25) : std::ldexp(digits, -24);
  return h & 0x8000 ? -size : size;
}

// The session's threads: what ONNX Runtime gives an operator.
OrtStatus* ORT_API_CALL parallel_for(const OrtKernelContext*, void (*body)(void*, size_t), size_t total, size_t, void* data) noexcept {
  std::atomic<size_t> next{0};
  auto work = [&] {
    for (size_t i = next++; i < total; i = next++) body(data, i);
  };
  std::thread other(work);
  work();
  other.join();
  return nullptr;
}

struct Fuzz {
  AttentionPass pass{};
  std::vector<int32_t> starts, lengths, slots, parents;
  std::vector<float> query, key, value, cos, sin, sinks;
  std::vector<double> keys, values;  // as cached before and, by the reference, after
  size_t slot_count = 0;
  bool tree = false;

  Fuzz() {
    pass.kv_heads = 1 + upto(2);
    pass.heads = pass.kv_heads * (1 + upto(4));
    pass.head_size = often() ? 8 * (1 + upto(11)) : 1 + upto(40);
    pass.half = upto(1);
    pass.scale = often() ? 1 / std::sqrt(static_cast<float>(pass.head_size)) : 0.3f;
    pass.softcap = often() ? 0 : 5;
    pass.window = often() ? 0 : 1 + upto(200);
    pass.rotary_dim = often() ? 2 * upto(pass.head_size / 2) : 0;
    pass.interleaved = upto(1);
    if (!often()) pass.read_first = upto(150), pass.read_last = upto(150);
    tree = !often();
    pass.sequences = 1 + upto(3);
    starts.push_back(0);
    for (size_t s = 0; s < pass.sequences; s++) {
      const size_t rows = often() ? 1 + upto(6) : 1 + upto(120), past = often() ? upto(300) : upto(3);
      for (size_t i = 0; i < rows; i++) parents.push_back(static_cast<int32_t>(upto(i)) - 1);
      starts.push_back(starts.back() + static_cast<int32_t>(rows));
      lengths.push_back(static_cast<int32_t>(past));
      slots.insert(slots.begin() + static_cast<long>(upto(s)), static_cast<int32_t>(s));
      pass.capacity = std::max(pass.capacity, past + rows);
    }
    slot_count = pass.sequences;
    pass.tokens = static_cast<size_t>(starts.back());
    pass.query_stride = pass.heads * pass.head_size;
    pass.key_stride = pass.kv_heads * pass.head_size;
    query = normal(pass.tokens * pass.query_stride);
    key = normal(pass.tokens * pass.key_stride);
    value = normal(pass.tokens * pass.key_stride);
    cos = normal(pass.capacity * (pass.rotary_dim / 2));
    sin = normal(pass.capacity * (pass.rotary_dim / 2));
    if (upto(1)) sinks = normal(pass.heads);
    for (auto* cache : {&keys, &values})
      for (float x : normal(slot_count * pass.kv_heads * pass.capacity * pass.head_size)) cache->push_back(cached(x));
  }

  double cached(double x) const { return pass.half ? from_half(to_half(static_cast<float>(x))) : static_cast<float>(x); }

  template <class T>
  bool run(T (*store)(double), double (*load)(T)) {
    std::vector<T> key_values, value_values;
    for (double x : keys) key_values.push_back(store(x));
    for (double x : values) value_values.push_back(store(x));
    auto k = exactly(key_values), v = exactly(value_values);
    auto q = exactly(query), nk = exactly(key), nv = exactly(value), c = exactly(cos), s = exactly(sin), w = exactly(sinks);
    auto starts_ = exactly(starts), lengths_ = exactly(lengths), slots_ = exactly(slots), parents_ = exactly(parents);
    auto out = exactly(std::vector<float>(query.size(), NAN));
    pass.query = q.get(), pass.key = nk.get(), pass.value = nv.get(), pass.cos = c.get(), pass.sin = s.get();
    pass.sinks = sinks.empty() ? nullptr : w.get();
    pass.keys = k.get(), pass.values = v.get(), pass.output = out.get();
    pass.starts = starts_.get(), pass.lengths = lengths_.get(), pass.slots = slots_.get();
    pass.parents = tree ? parents_.get() : nullptr;
    if (run_attention(nullptr, pass)) return false;
    const std::vector<double> wanted = reference();
    double worst = 0;
    for (size_t i = 0; i < wanted.size(); i++) worst = std::max(worst, distance(out[i], wanted[i]));
    const double limit = pass.half ? 0.02 : 1e-4;
    double cache = 0;
    for (size_t i = 0; i < keys.size(); i++)
      cache = std::max({cache, distance(load(k[i]), keys[i]), distance(load(v[i]), values[i])});
    if (worst < limit && cache < (pass.half ? 0.01 : 1e-5)) return true;
    printf("output off by %g, caches by %g: D %zu, H %zu, G %zu, half %d, window %zu, read %zu %zu, rotary %zu, tree %d, %zu tokens\n",
           worst, cache, pass.head_size, pass.heads, pass.kv_heads, pass.half, pass.window, pass.read_first, pass.read_last,
           pass.rotary_dim, tree, pass.tokens);
    return false;
  }
  static double distance(double a, double b) { return std::isfinite(a) ? std::fabs(a - b) : INFINITY; }

  std::vector<double> rotated(const float* from, size_t position) const {
    std::vector<double> x(from, from + pass.head_size), y = x;
    const size_t half = pass.rotary_dim / 2;
    for (size_t i = 0; i < half; i++) {
      const size_t a = pass.interleaved ? 2 * i : i, b = pass.interleaved ? 2 * i + 1 : half + i;
      const double c = cos[position * half + i], s = sin[position * half + i];
      y[a] = x[a] * c - x[b] * s;
      y[b] = x[b] * c + x[a] * s;
    }
    return y;
  }

  // Changes keys and values as the pass must, returns the output.
  std::vector<double> reference() {
    const size_t size = pass.head_size, group = pass.heads / pass.kv_heads;
    std::vector<double> out(query.size());
    for (size_t q = 0; q < pass.sequences; q++) {
      const auto start = static_cast<size_t>(starts[q]), rows = static_cast<size_t>(starts[q + 1]) - start;
      const auto past = static_cast<size_t>(lengths[q]);
      auto cache = [&](size_t head, size_t token) { return ((static_cast<size_t>(slots[q]) * pass.kv_heads + head) * pass.capacity + token) * size; };
      auto parent = [&](size_t i) { return tree ? parents[start + i] : static_cast<int32_t>(i) - 1; };
      std::vector<size_t> depth(rows);
      for (size_t i = 0; i < rows; i++) depth[i] = parent(i) < 0 ? 0 : depth[static_cast<size_t>(parent(i))] + 1;
      for (size_t i = 0; i < rows; i++)
        for (size_t g = 0; g < pass.kv_heads; g++) {
          const auto k = rotated(&key[(start + i) * pass.key_stride + g * size], past + depth[i]);
          for (size_t d = 0; d < size; d++) {
            keys[cache(g, past + i) + d] = cached(k[d]);
            values[cache(g, past + i) + d] = cached(value[(start + i) * pass.key_stride + g * size + d]);
          }
        }
      for (size_t i = 0; i < rows; i++) {
        std::vector<size_t> seen;
        for (size_t j = 0; j < past; j++) {
          const bool all = !pass.read_first && !pass.read_last;
          const bool kept = all || j < pass.read_first || j + pass.read_last >= past;
          if (kept && (!pass.window || j + pass.window > past + depth[i])) seen.push_back(j);
        }
        for (int32_t at = static_cast<int32_t>(i); at >= 0; at = parent(static_cast<size_t>(at)))
          if (!pass.window || depth[static_cast<size_t>(at)] + pass.window > depth[i]) seen.push_back(past + static_cast<size_t>(at));
        for (size_t h = 0; h < pass.heads; h++) {
          const auto x = rotated(&query[(start + i) * pass.query_stride + h * size], past + depth[i]);
          std::vector<double> scores;
          double top = sinks.empty() ? -INFINITY : sinks[h];
          for (size_t j : seen) {
            double score = 0;
            for (size_t d = 0; d < size; d++) score += x[d] * keys[cache(h / group, j) + d];
            score *= pass.scale;
            if (pass.softcap != 0) score = pass.softcap * std::tanh(score / pass.softcap);
            scores.push_back(score);
            top = std::max(top, score);
          }
          double sum = sinks.empty() ? 0 : std::exp(sinks[h] - top);
          for (double& score : scores) sum += score = std::exp(score - top);
          for (size_t n = 0; n < seen.size(); n++)
            for (size_t d = 0; d < size; d++)
              out[(start + i) * pass.query_stride + h * size + d] += scores[n] / sum * values[cache(h / group, seen[n]) + d];
        }
      }
    }
    return out;
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 || !chosen().kernels) {
    fprintf(stderr, "usage: attention_fuzz SEED SECONDS; %s\n", chosen().reason);
    return 2;
  }
  static OrtApi threads{};
  threads.KernelContext_ParallelFor = parallel_for;
  api = &threads;
  const unsigned long seed = strtoul(argv[1], nullptr, 10);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(atof(argv[2]));
  unsigned long count = 0;
  for (; count < 3 || std::chrono::steady_clock::now() < end; count++) {
    random_bits.seed(seed + count);
    Fuzz fuzz;
    const bool good = fuzz.pass.half ? fuzz.run<uint16_t>([](double x) { return to_half(static_cast<float>(x)); }, from_half)
                                     : fuzz.run<float>([](double x) { return static_cast<float>(x); }, [](float x) { return double{x}; });
    if (good) continue;
    printf("seed %lu is wrong\n", seed + count);
    return 1;
  }
  printf("%lu passes with %s\n", count, isa_name(chosen().isa));
  return 0;
}
