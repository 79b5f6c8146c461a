// How the work of one attention pass is cut into items.
#include "attention_plan.h"

#include <algorithm>
#include <new>

namespace specdec {

size_t Stretches::pieces(size_t stretch) const {
  if (begin[stretch] >= end[stretch]) return 0;
  return (end[stretch] - 1) / kAttentionSplit - begin[stretch] / kAttentionSplit + 1;
}

void Stretches::piece(size_t index, size_t* from, size_t* until) const {
  const size_t before = pieces(0), stretch = index < before ? 0 : 1;
  const size_t split = begin[stretch] / kAttentionSplit + (stretch ? index - before : index);
  *from = std::max(begin[stretch], split * kAttentionSplit);
  *until = std::min(end[stretch], (split + 1) * kAttentionSplit);
}

namespace {
Stretches stretches(const AttentionPass& pass, const AttentionRows& rows) {
  const size_t first = rows.first / rows.group, last = (rows.first + rows.rows - 1) / rows.group;
  const auto lowest = static_cast<size_t>(*std::min_element(rows.positions + first, rows.positions + last + 1));
  const size_t begin = pass.window && lowest + 1 > pass.window ? lowest + 1 - pass.window : 0;
  const size_t end = rows.past + last + 1;
  size_t hole = rows.past, after = rows.past;  // tokens hole .. after - 1 are left out
  if (pass.read_first || pass.read_last) {
    hole = std::min(hole, pass.read_first);
    after = std::max(hole, rows.past - std::min(rows.past, pass.read_last));
  }
  if (hole == after) return {{begin, 0}, {end, 0}};
  return {{begin, std::max(begin, after)}, {hole, end}};
}
}  // namespace

size_t count_units(const AttentionPass& pass) {
  const size_t group = pass.heads / pass.kv_heads;
  size_t count = 0;
  for (size_t s = 0; s < pass.sequences; s++)
    count += (sequence_of(pass, s).tokens * group + kAttentionRowBlock - 1) / kAttentionRowBlock;
  return count * pass.kv_heads;
}

size_t make_units(const AttentionPass& pass, const Prepared& prepared, Unit* units) {
  const size_t group = pass.heads / pass.kv_heads, size = pass.head_size;
  size_t at = 0, items = 0;
  for (size_t s = 0; s < pass.sequences; s++) {
    const Sequence sequence = sequence_of(pass, s);
    const size_t count = sequence.tokens * group;
    for (size_t head = 0; head < pass.kv_heads; head++) {
      const size_t cache = (sequence.slot * pass.kv_heads + head) * pass.capacity * size * (pass.half ? 2 : 4);
      const float* queries = prepared.queries + sequence.start * pass.heads * size + head * count * size;
      // The last rows see most: they come first, so that no thread is left with them at the end.
      for (size_t block = (count - 1) / kAttentionRowBlock + 1; block-- > 0;) {
        Unit* unit = new (units + at++) Unit;
        AttentionRows& rows = unit->rows;
        rows.first = block * kAttentionRowBlock;
        rows.rows = std::min(kAttentionRowBlock, count - rows.first);
        rows.queries = queries + rows.first * size;
        rows.group = group;
        rows.head_size = size;
        rows.keys = static_cast<const char*>(pass.keys) + cache;
        rows.values = static_cast<const char*>(pass.values) + cache;
        rows.half = pass.half;
        rows.past = sequence.past;
        rows.positions = prepared.positions + sequence.start;
        rows.window = pass.window;
        rows.ancestors = prepared.ancestors ? prepared.ancestors + sequence.start * prepared.words : nullptr;
        rows.words = prepared.words;
        rows.scale = pass.scale;
        rows.softcap = pass.softcap;
        unit->result = {pass.output + (sequence.start * pass.heads + head * group) * size, pass.heads * size,
                        pass.sinks ? pass.sinks + head * group : nullptr};
        unit->read = stretches(pass, rows);
        unit->first_item = items;
        unit->items = count <= kAttentionRowBlock ? unit->read.pieces() : 1;
        unit->states = nullptr;
        unit->done.store(0, std::memory_order_relaxed);
        items += unit->items;
      }
    }
  }
  return items;
}

}  // namespace specdec
