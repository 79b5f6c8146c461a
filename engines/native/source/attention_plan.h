// How the work of one attention pass is cut into items that any thread can take.
#pragma once
#include <atomic>

#include "attention_pass.h"

namespace specdec {

constexpr size_t kAttentionRowBlock = 96;  // rows (of a KV head) whose results are held while its tokens are read

// Cached tokens that some row of a block reads: up to two stretches, cut into pieces at the splits.
struct Stretches {
  size_t begin[2], end[2];
  size_t pieces(size_t stretch) const;
  size_t pieces() const { return pieces(0) + pieces(1); }
  void piece(size_t index, size_t* from, size_t* until) const;
};

// Rows of one sequence and KV head. With pieces of their own each piece is an item, and the last one to finish adds up.
struct Unit {
  AttentionRows rows;
  AttentionResult result;
  Stretches read;
  size_t first_item, items;  // items: 1, or one a piece
  float* states;             // null, or items x state_floats
  std::atomic<size_t> done;
};

// Tokens of one sequence in this pass.
struct Sequence {
  size_t start, tokens, past, slot;
};
inline Sequence sequence_of(const AttentionPass& pass, size_t index) {
  const size_t start = static_cast<size_t>(pass.starts[index]), end = static_cast<size_t>(pass.starts[index + 1]);
  return {start, end - start, static_cast<size_t>(pass.lengths[index]), static_cast<size_t>(pass.slots[index])};
}

inline size_t state_floats(size_t rows, size_t head_size) {
  return (2 * rows + kAttentionMaxVector - 1) / kAttentionMaxVector * kAttentionMaxVector +
         rows * attention_width(head_size);
}
inline AttentionState state_at(float* memory, size_t rows, size_t head_size) {
  return {memory, memory + rows, memory + state_floats(rows, head_size) - rows * attention_width(head_size)};
}

// What all units share, in memory of the calling thread.
struct Prepared {
  const float* queries;       // rotated: sequence by sequence [kv_heads, tokens x group, head_size]
  const int64_t* positions;   // tokens
  const uint64_t* ancestors;  // null, or tokens x words
  size_t words;
};

size_t count_units(const AttentionPass& pass);
// Fills units; returns the items. Their states are not yet set: state_floats(rows) x items for those with several.
size_t make_units(const AttentionPass& pass, const Prepared& prepared, Unit* units);

}  // namespace specdec
