// The attention kernels, over the vectors of the vec_*.h included before and what each file adds to them:
// tile_vectors(rows) (columns of a register tile of so many rows), transpose4, narrow4, total, lane0, where_below.
// Everything in an anonymous namespace: each instruction set has its own copy.
#pragma once
#include "attention.h"
#include "attention_math.h"
#include "attention_tile.h"

namespace {
using namespace specdec;

constexpr float kNever = -__builtin_inff();

INLINE size_t lesser(size_t a, size_t b) { return a < b ? a : b; }

void widen_row(const uint16_t* from, size_t count, float* to) {
  size_t i = 0;
  for (; i + kWidth <= count; i += kWidth) store(to + i, load(from + i));
  if (i < count) {
    uint16_t rest[kWidth] = {};
    __builtin_memcpy(rest, from + i, (count - i) * sizeof(uint16_t));
    store(to + i, load(rest));
  }
}

// Copies tokens first .. first + count - 1 of keys or values to rows of `stride` floats, widened.
void copy_tokens(const void* from, bool half, size_t first, size_t count, size_t head_size, float* to, size_t stride) {
  for (size_t t = 0; t < count; t++) {
    const size_t at = (first + t) * head_size;
    if (half)
      widen_row(static_cast<const uint16_t*>(from) + at, head_size, to + t * stride);
    else
      __builtin_memcpy(to + t * stride, static_cast<const float*>(from) + at, head_size * sizeof(float));
  }
}

// Transposes one vector of keys ([kWidth, head_size], `stride` floats apart) to columns of to [head_size, block].
void transpose(const float* from, size_t stride, size_t head_size, float* to, Ahead& ahead) {
  Ahead here = ahead;
  size_t d = 0;
  for (; d + 4 <= head_size; d += 4) {
    here.step();
    transpose4(from + d, stride, to + d * kAttentionBlock, kAttentionBlock);
  }
  for (; d < head_size; d++)
    for (size_t t = 0; t < kWidth; t++) to[d * kAttentionBlock + t] = from[t * stride + d];
  ahead = here;
}

// Columns first .. last - 1 of the block of tokens from `base` on, as to [head_size, block]; whole vectors are written,
// zero outside of these columns.
void transpose_keys(const AttentionRows& rows, size_t base, size_t first, size_t last, float* to, float* copy,
                    Ahead& ahead) {
  const size_t width = attention_width(rows.head_size);
  for (size_t v = first / kWidth * kWidth; v < last; v += kWidth) {
    const size_t from = v < first ? first : v, until = v + kWidth < last ? v + kWidth : last;
    if (!rows.half && until - from == kWidth) {
      transpose(static_cast<const float*>(rows.keys) + (base + v) * rows.head_size, rows.head_size, rows.head_size,
                   to + v, ahead);
      continue;
    }
    if (until - from < kWidth) __builtin_memset(copy, 0, kWidth * width * sizeof(float));
    copy_tokens(rows.keys, rows.half, base + from, until - from, rows.head_size, copy + (from - v) * width, width);
    transpose(copy, width, rows.head_size, to + v, ahead);
  }
}

// The cached tokens that row r sees are begin .. end - 1, less what ancestors exclude.
struct Span {
  size_t begin, end;
};
inline Span seen(const AttentionRows& rows, size_t r) {
  const size_t token = (rows.first + r) / rows.group;
  const size_t position = static_cast<size_t>(rows.positions[token]);
  return {rows.window && position + 1 > rows.window ? position + 1 - rows.window : 0, rows.past + token + 1};
}

// Scales and caps the scores of one row (columns first .. last - 1, whole vectors), and excludes what it does not see.
void mask_scores(const AttentionRows& rows, size_t r, size_t base, size_t first, size_t last, float* scores) {
  for (size_t c = first / kWidth * kWidth; c < last; c += kWidth) {
    V x = mul(load(scores + c), set(rows.scale));
    if (rows.softcap != 0) x = mul(set(rows.softcap), tanh(divide(x, set(rows.softcap))));
    store(scores + c, x);
  }
  const Span span = seen(rows, r);
  const size_t end = (last + kWidth - 1) / kWidth * kWidth;
  const size_t low = span.begin > base + first ? span.begin - base : first;
  const size_t high = span.end < base + last ? (span.end > base ? span.end - base : 0) : last;
  for (size_t c = first / kWidth * kWidth; c < low && c < end; c++) scores[c] = kNever;
  for (size_t c = high; c < end; c++) scores[c] = kNever;
  if (!rows.ancestors || base + high <= rows.past) return;
  const uint64_t* bits = rows.ancestors + (rows.first + r) / rows.group * rows.words;
  for (size_t c = rows.past > base ? rows.past - base : 0; c < high; c++) {
    const size_t token = base + c - rows.past;
    if (!(bits[token / 64] >> token % 64 & 1)) scores[c] = kNever;
  }
}

// Turns scores (masked) into weights exp(score - max) and adds their sum; returns what the row's earlier values are
// multiplied with. The sum has sixteen lanes whatever the vector, so that its order is the same everywhere.
float weigh(size_t first, size_t last, float* scores, float* highest, float* weights) {
  constexpr size_t kLanes = kAttentionMaxVector / kWidth;
  const size_t begin = first / kWidth * kWidth;
  V most = load(scores + begin);
  for (size_t c = begin + kWidth; c < last; c += kWidth) most = max(most, load(scores + c));
  const float before = *highest, here = largest(most), now = here <= before ? before : here;  // NaN is kept
  if (now == kNever) {  // nothing seen so far
    for (size_t c = begin; c < last; c += kWidth) store(scores + c, set(0));
    return 1;
  }
  V lanes[kLanes];
  for (size_t i = 0; i < kLanes; i++) lanes[i] = set(0);
  for (size_t c = begin; c < last; c += kWidth) {
    const V weight = exp_or_zero(sub(load(scores + c), set(now)));
    store(scores + c, weight);
    lanes[c / kWidth % kLanes] = add(lanes[c / kWidth % kLanes], weight);
  }
  for (size_t half = kLanes / 2; half; half /= 2)
    for (size_t i = 0; i < half; i++) lanes[i] = add(lanes[i], lanes[i + half]);
  const float alpha = now == before ? 1 : lane0(exp_or_zero(set(before - now)));
  *highest = now;
  *weights = *weights * alpha + total(lanes[0]);
  return alpha;
}

void attend(const AttentionRows& rows, size_t begin, size_t end, size_t ahead, const AttentionState& state,
            float* scratch) {
  const size_t size = rows.head_size, width = attention_width(size), vectors = (size + kWidth - 1) / kWidth;
  float* keys = scratch;                                       // [size, block]
  float* copy = keys + kAttentionBlock * size;                 // [block + vector, width]
  float* scores = copy + (kAttentionBlock + kAttentionMaxVector) * width;  // [kRows, block]
  for (size_t r = 0; r < rows.rows; r++) {
    state.max[r] = kNever;
    state.sum[r] = 0;
  }
  __builtin_memset(state.values, 0, rows.rows * width * sizeof(float));
  for (size_t base = begin / kAttentionBlock * kAttentionBlock; base < end; base += kAttentionBlock) {
    const size_t first = begin > base ? begin - base : 0;
    const size_t last = lesser(kAttentionBlock, end - base);
    const size_t bytes = size * (rows.half ? 2 : 4), next = base + kAttentionBlock;
    const char *soon = static_cast<const char*>(rows.values) + (base + first) * bytes,
               *later = static_cast<const char*>(rows.keys) + next * bytes;
    const size_t after = next < ahead ? lesser(kAttentionBlock, ahead - next) : 0;
    Ahead line{soon, soon + (last - first) * bytes, later, later + after * bytes, 0};
    line.pace((last - first) * bytes, (size / 4 + 1) * kAttentionBlock / kWidth);
    transpose_keys(rows, base, first, last, keys, copy, line);
    line.pace(line.left(), (rows.rows + kRows - 1) / kRows * (size + last - first));
    const float* values = static_cast<const float*>(rows.values) + (base + first) * size;
    size_t stride = size;
    if (rows.half || size % kWidth) {  // whole vectors can be read of a copy
      copy_tokens(rows.values, rows.half, base + first, last - first, size, copy, width);
      values = copy;
      stride = width;
    }
    const size_t column = first / kWidth * kWidth, columns = (last - column + kWidth - 1) / kWidth;
    for (size_t r = 0; r < rows.rows; r += kRows) {
      const size_t count = lesser(kRows, rows.rows - r);
      if (seen(rows, r + count - 1).end <= base + first) continue;
      float alpha[kRows];
      product(count, rows.queries + r * size, size, keys + column, kAttentionBlock, size, scores + column,
                 kAttentionBlock, columns, nullptr, line);
      for (size_t i = 0; i < count; i++) {
        mask_scores(rows, r + i, base, first, last, scores + i * kAttentionBlock);
        alpha[i] = weigh(first, last, scores + i * kAttentionBlock, state.max + r + i, state.sum + r + i);
      }
      product(count, scores + first, kAttentionBlock, values, stride, last - first, state.values + r * width, width,
                 vectors, alpha, line);
    }
  }
}

// What a state counts for under a new maximum.
float share(float max, float now) {
  return max == now ? 1 : lane0(exp_or_zero(set(max - now)));
}

void fold(const AttentionState& total, const AttentionState& part, size_t rows, size_t head_size) {
  const size_t width = attention_width(head_size);
  for (size_t r = 0; r < rows; r++) {
    const float now = total.max[r] > part.max[r] ? total.max[r] : part.max[r];
    const float a = share(total.max[r], now), b = share(part.max[r], now);
    total.max[r] = now;
    total.sum[r] = total.sum[r] * a + part.sum[r] * b;
    float *to = total.values + r * width, *from = part.values + r * width;
    for (size_t d = 0; d < head_size; d += kWidth)
      store(to + d, fma(load(from + d), set(b), mul(load(to + d), set(a))));
  }
}

void finish(const AttentionRows& rows, const AttentionState& state, const AttentionResult& result) {
  const size_t size = rows.head_size, width = attention_width(size);
  for (size_t r = 0; r < rows.rows; r++) {
    const size_t head = (rows.first + r) % rows.group, token = (rows.first + r) / rows.group;
    float sum = state.sum[r], factor = 1;
    if (result.sinks) {
      const float sink = result.sinks[head], now = sink > state.max[r] ? sink : state.max[r];
      factor = share(state.max[r], now);
      sum = sum * factor + share(sink, now);
    }
    factor /= sum;
    float *to = result.output + token * result.token_stride + head * size, *from = state.values + r * width;
    size_t d = 0;
    for (; d + kWidth <= size; d += kWidth) store(to + d, mul(load(from + d), set(factor)));
    for (; d < size; d++) to[d] = from[d] * factor;
  }
}

void rotate(const float* from, const float* cos, const float* sin, size_t rotary_dim, bool interleaved,
            size_t head_size, float* to) {
  const size_t half = rotary_dim / 2;
  size_t i = 0;
  if (!interleaved)
    for (; i + kWidth <= half; i += kWidth) {
      const V x = load(from + i), y = load(from + half + i), c = load(cos + i),
                          s = load(sin + i), negative = sub(set(0), s);
      store(to + i, fma(y, negative, mul(x, c)));
      store(to + half + i, fma(x, s, mul(y, c)));
    }
  for (; i < half; i++) {
    const size_t one = interleaved ? 2 * i : i, other = interleaved ? 2 * i + 1 : half + i;
    const float x = from[one], y = from[other];
    to[one] = __builtin_fmaf(y, -sin[i], x * cos[i]);
    to[other] = __builtin_fmaf(x, sin[i], y * cos[i]);
  }
  if (head_size > rotary_dim) __builtin_memcpy(to + rotary_dim, from + rotary_dim, (head_size - rotary_dim) * sizeof(float));
}

void narrow(const float* from, size_t count, uint16_t* to) {
  size_t i = 0;
  for (; i + kWidth <= count; i += kWidth) narrow4(load(from + i), to + i);
  if (i < count) {
    float rest[kWidth] = {};
    uint16_t narrowed[kWidth];
    __builtin_memcpy(rest, from + i, (count - i) * sizeof(float));
    narrow4(load(rest), narrowed);
    __builtin_memcpy(to + i, narrowed, (count - i) * sizeof(uint16_t));
  }
}

constexpr AttentionKernels kAttentionKernels = {attend, fold, finish, rotate, narrow};

}  // namespace
