// One pass of the attention operator: caches the new keys and values, then lets the threads take items.
#include "attention_pass.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "attention_plan.h"
#include "isa.h"
#include "scratch.h"

namespace specdec {

namespace {

#if defined(__x86_64__)
const AttentionKernels& in_use() { return chosen().isa == Isa::kAvx512 ? attention_avx512 : attention_avx2; }
#elif defined(__aarch64__)
const AttentionKernels& in_use() { return attention_neon; }
#endif

constexpr size_t kSerialWork = 1 << 14;  // multiply-adds and floats below which waking threads costs more

// body(item) for each, in parts that the threads take one by one.
template <class Body>
OrtStatus* each(OrtKernelContext* context, size_t items, size_t work, const Body& body) {
  if (items <= 1 || work < kSerialWork) {
    for (size_t i = 0; i < items; i++) body(i);
    return nullptr;
  }
  auto one = [](void* self, size_t i) { (*static_cast<const Body*>(self))(i); };
  return api->KernelContext_ParallelFor(context, one, items, items, const_cast<Body*>(&body));
}

// Position of each new token, and in a tree which new tokens it sees: its ancestors within the window, and itself.
void place(const AttentionPass& pass, int64_t* positions, uint64_t* ancestors, size_t words) {
  for (size_t s = 0; s < pass.sequences; s++) {
    const Sequence sequence = sequence_of(pass, s);
    for (size_t i = 0; i < sequence.tokens; i++) {
      int64_t* position = positions + sequence.start + i;
      *position = static_cast<int64_t>(sequence.past + i);
      if (!ancestors) continue;
      const int32_t* parents = pass.parents + sequence.start;
      const int32_t parent = parents[i];
      *position = parent < 0 ? static_cast<int64_t>(sequence.past) : positions[sequence.start + static_cast<size_t>(parent)] + 1;
      uint64_t* bits = ancestors + (sequence.start + i) * words;
      std::memset(bits, 0, words * sizeof(uint64_t));
      size_t left = pass.window ? pass.window : sequence.tokens;
      for (auto at = static_cast<int32_t>(i); at >= 0 && left > 0; at = parents[at], left--)
        bits[at / 64] |= uint64_t{1} << at % 64;
    }
  }
}

// Rotates the queries of one token to where attend reads them, and caches its key and value.
void prepare_token(const AttentionPass& pass, const AttentionKernels& kernels, const Sequence& sequence, size_t i,
                   size_t position, float* queries, float* head) {
  const size_t size = pass.head_size, group = pass.heads / pass.kv_heads, token = sequence.start + i;
  auto rotate = [&](const float* from, float* to) {
    const size_t angles = position * (pass.rotary_dim / 2);
    if (pass.rotary_dim)
      kernels.rotate(from, pass.cos + angles, pass.sin + angles, pass.rotary_dim, pass.interleaved, size, to);
    else
      std::memcpy(to, from, size * sizeof(float));
  };
  for (size_t h = 0; h < pass.heads; h++)
    rotate(pass.query + token * pass.query_stride + h * size,
           queries + (sequence.start * pass.heads + h / group * sequence.tokens * group + i * group + h % group) * size);
  for (size_t g = 0; g < pass.kv_heads; g++) {
    const size_t at = ((sequence.slot * pass.kv_heads + g) * pass.capacity + sequence.past + i) * size;
    const float *key = pass.key + token * pass.key_stride + g * size,
                *value = pass.value + token * pass.key_stride + g * size;
    if (pass.half) {
      rotate(key, head);
      kernels.narrow(head, size, static_cast<uint16_t*>(pass.keys) + at);
      kernels.narrow(value, size, static_cast<uint16_t*>(pass.values) + at);
    } else {
      rotate(key, static_cast<float*>(pass.keys) + at);
      std::memcpy(static_cast<float*>(pass.values) + at, value, size * sizeof(float));
    }
  }
}

struct Runner {
  const AttentionKernels& kernels;
  Unit* units;
  size_t count;
  std::atomic<bool> no_memory{false};

  void item(size_t index, bool next) {
    Unit& unit = *(std::upper_bound(units, units + count, index,
                                    [](size_t i, const Unit& u) { return i < u.first_item; }) - 1);
    static thread_local Scratch memory;
    const size_t rows = unit.rows.rows, size = unit.rows.head_size, state = state_floats(rows, size);
    float* scratch = memory.take<float>(2 * state + attention_scratch(size));
    if (!scratch) {
      no_memory = true;
      return;
    }
    if (unit.items == 1)
      whole(unit, scratch);
    else
      piece(unit, index - unit.first_item, next, scratch);
  }

 private:
  // next: the piece that this thread takes next is the following one.
  void attend(const Unit& unit, size_t piece, bool next, const AttentionState& state, float* scratch) const {
    size_t from, until, start, ahead;
    unit.read.piece(piece, &from, &until);
    unit.read.piece(next && piece + 1 < unit.read.pieces() ? piece + 1 : piece, &start, &ahead);
    if (start > until) ahead = until;  // what lies between is not read
    kernels.attend(unit.rows, from, until, ahead, state, scratch);
  }

  void whole(const Unit& unit, float* scratch) const {
    const size_t rows = unit.rows.rows, size = unit.rows.head_size, state = state_floats(rows, size);
    const AttentionState total = state_at(scratch, rows, size), part = state_at(scratch + state, rows, size);
    attend(unit, 0, true, total, scratch + 2 * state);
    for (size_t i = 1; i < unit.read.pieces(); i++) {
      attend(unit, i, true, part, scratch + 2 * state);
      kernels.fold(total, part, rows, size);
    }
    kernels.finish(unit.rows, total, unit.result);
  }

  void piece(Unit& unit, size_t index, bool next, float* scratch) const {
    const size_t rows = unit.rows.rows, size = unit.rows.head_size, state = state_floats(rows, size);
    attend(unit, index, next, state_at(unit.states + index * state, rows, size), scratch);
    if (unit.done.fetch_add(1, std::memory_order_acq_rel) + 1 < unit.items) return;
    const AttentionState total = state_at(unit.states, rows, size);
    for (size_t i = 1; i < unit.items; i++) kernels.fold(total, state_at(unit.states + i * state, rows, size), rows, size);
    kernels.finish(unit.rows, total, unit.result);
  }
};

}  // namespace

OrtStatus* run_attention(OrtKernelContext* context, const AttentionPass& pass) {
  const AttentionKernels& kernels = in_use();
  const size_t units_count = count_units(pass), size = pass.head_size;
  size_t words = 0;
  if (pass.parents)
    for (size_t s = 0; s < pass.sequences; s++) words = std::max(words, (sequence_of(pass, s).tokens + 63) / 64);

  static thread_local Scratch placed_memory, unit_memory, query_memory, state_memory;
  int64_t* positions = placed_memory.take<int64_t>(pass.tokens * (1 + words));
  Unit* units = unit_memory.take<Unit>(units_count);
  float* queries = query_memory.take<float>(pass.tokens * pass.heads * size);
  if (!positions || !units || !queries) return fail("no memory for %zu rows of attention", pass.tokens);
  uint64_t* ancestors = words ? reinterpret_cast<uint64_t*>(positions + pass.tokens) : nullptr;
  place(pass, positions, ancestors, words);

  const size_t items = make_units(pass, {queries, positions, ancestors, words}, units);
  size_t floats = 0, work = 0;
  for (size_t u = 0; u < units_count; u++) {
    const Unit& unit = units[u];
    if (unit.items > 1) floats += unit.items * state_floats(unit.rows.rows, size);
    for (size_t s = 0; s < 2; s++)
      if (unit.read.end[s] > unit.read.begin[s]) work += (unit.read.end[s] - unit.read.begin[s]) * size * (1 + unit.rows.rows / 8);
  }
  float* states = state_memory.take<float>(floats);
  if (floats && !states) return fail("no memory for %zu rows of attention", pass.tokens);
  for (size_t u = 0; u < units_count; u++)
    if (units[u].items > 1) {
      units[u].states = states;
      states += units[u].items * state_floats(units[u].rows.rows, size);
    }

  // Some tokens an item, so that few rows cost no wake-up.
  const size_t per_item = std::max<size_t>(1, kSerialWork / 4 / ((pass.heads + 2 * pass.kv_heads) * size));
  std::atomic<bool> no_memory{false};
  TRY(each(context, (pass.tokens + per_item - 1) / per_item, pass.tokens * (pass.heads + 2 * pass.kv_heads) * size, [&](size_t part) {
    static thread_local Scratch memory;
    float* head = memory.take<float>(size);
    if (!head) {
      no_memory = true;
      return;
    }
    const size_t last = std::min(pass.tokens, (part + 1) * per_item);
    size_t s = static_cast<size_t>(std::upper_bound(pass.starts, pass.starts + pass.sequences, static_cast<int32_t>(part * per_item)) - pass.starts) - 1;
    for (size_t t = part * per_item; t < last; t++) {
      while (t >= static_cast<size_t>(pass.starts[s + 1])) s++;
      const Sequence sequence = sequence_of(pass, s);
      prepare_token(pass, kernels, sequence, t - sequence.start, static_cast<size_t>(positions[t]), queries, head);
    }
  }));
  Runner runner{kernels, units, units_count};
  const size_t processors = static_cast<size_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  const size_t parts = items <= 8 * processors ? items : std::max(4 * processors, items / 8);
  TRY(each(context, parts, work, [&](size_t part) {
    const size_t last = items * (part + 1) / parts;
    for (size_t i = items * part / parts; i < last; i++) runner.item(i, i + 1 < last);
  }));
  if (no_memory || runner.no_memory) return fail("no memory for %zu rows of attention", pass.tokens);
  return nullptr;
}

}  // namespace specdec
