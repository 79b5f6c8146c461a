// Attention of rows to a cache: the jobs, and the table of kernels that each instruction set fills.
//
// Cached tokens are taken in blocks of 64 and folded in splits of 128, both at fixed positions of the cache. All sums
// of a row have a fixed order, so its result has the same bits whatever runs beside it: more rows, other sequences,
// any number of threads.
#pragma once
#include <cstddef>
#include <cstdint>

namespace specdec {

constexpr size_t kAttentionBlock = 64;       // cached tokens whose scores are held at a time
constexpr size_t kAttentionSplit = 128;      // cached tokens of one partial result
constexpr size_t kAttentionMaxVector = 16;   // floats of the widest vector; rows of results are padded to it

static inline size_t attention_width(size_t head_size) {
  return (head_size + kAttentionMaxVector - 1) / kAttentionMaxVector * kAttentionMaxVector;
}

// Rows of one sequence and one KV head. Row r of the sequence is query head r % group of new token r / group.
struct AttentionRows {
  const float* queries;  // rows x head_size, rotated
  size_t first, rows;    // first: what r is for the first of these rows
  size_t group, head_size;
  const void* keys;  // [capacity, head_size] of the slot and head, in float32 or FP16
  const void* values;
  bool half;
  size_t past;                // tokens cached before this pass; new token i is cached at past + i
  const int64_t* positions;   // of the new tokens: past + i, or past + depth in a tree
  size_t window;              // tokens that a row sees, itself included; 0: all
  const uint64_t* ancestors;  // null, or for each new token a bit for each new token that it sees
  size_t words;               // 64-bit words of one row of ancestors
  float scale, softcap;       // softcap 0: none
};

// Softmax in progress: each row's highest score, its sum of exp(score - max), and its values under these weights.
struct AttentionState {
  float *max, *sum;  // rows
  float* values;     // rows x attention_width(head_size)
};

// Where the rows' results go.
struct AttentionResult {
  float* output;         // of the sequence's first token and the KV head's first query head
  size_t token_stride;   // floats from one token to the next
  const float* sinks;    // null, or the group's sinks: a logit each that takes part in the sum alone
};

struct AttentionKernels {
  // The state of rows over cached tokens begin .. end - 1, which lie in one split; tokens before `ahead` are likely to
  // be read by this thread next. scratch: attention_scratch floats.
  void (*attend)(const AttentionRows& rows, size_t begin, size_t end, size_t ahead, const AttentionState& state,
                 float* scratch);
  // Adds a state to another.
  void (*fold)(const AttentionState& total, const AttentionState& part, size_t rows, size_t head_size);
  // Divides by the sums and writes the result.
  void (*finish)(const AttentionRows& rows, const AttentionState& state, const AttentionResult& result);
  // Rotates one head by cos and sin (rotary_dim / 2 each); values past rotary_dim are copied.
  void (*rotate)(const float* from, const float* cos, const float* sin, size_t rotary_dim, bool interleaved,
                 size_t head_size, float* to);
  void (*narrow)(const float* from, size_t count, uint16_t* to);  // float32 to FP16, to nearest even
};

// Floats of scratch for attend, which must be aligned to 64 bytes: keys transposed, values or keys widened, scores.
static inline size_t attention_scratch(size_t head_size) {
  return kAttentionBlock * head_size + (kAttentionBlock + kAttentionMaxVector) * attention_width(head_size) +
         8 * kAttentionBlock;
}

#if defined(__x86_64__)
extern const AttentionKernels attention_avx512, attention_avx2;
#elif defined(__aarch64__)
extern const AttentionKernels attention_neon;
#endif

}  // namespace specdec
