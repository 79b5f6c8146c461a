// One pass of the attention operator over ragged rows: its description after all checks, and how it is run.
#pragma once
#include "attention.h"
#include "ort.h"

namespace specdec {

// Sizes are counted in tokens, heads and floats; everything was checked.
struct AttentionPass {
  size_t heads, kv_heads, head_size;
  float scale, softcap;
  size_t window;           // 0: none
  size_t rotary_dim;       // 0: no rotation
  bool interleaved, half;  // half: the caches are FP16

  const float *query, *key, *value;  // of the first token
  size_t query_stride, key_stride;   // floats from one token to the next (of key and value)
  void *keys, *values;               // caches [slots, kv_heads, capacity, head_size]
  size_t capacity;
  size_t tokens, sequences;
  const int32_t *starts, *lengths, *slots;
  const float *cos, *sin;  // rows of rotary_dim / 2
  const float* sinks;      // null, or heads
  size_t read_first, read_last;  // tokens of the past that are read; both 0: all
  const int32_t* parents;        // null, or tokens: the number of the parent in its sequence, -1: none
  float* output;                 // [tokens, heads * head_size]
};

// Caches the new keys and values, then attends. Fails only for want of memory.
OrtStatus* run_attention(OrtKernelContext* context, const AttentionPass& pass);

}  // namespace specdec
