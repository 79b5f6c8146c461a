// Attention over caches that are written in place: rows of several sequences in one pass, each with its own slot.
#include <cmath>
#include <cstring>

#include "attention_pass.h"
#include "operators.h"

namespace specdec {
namespace {

enum Input { kQuery, kKey, kValue, kPastKey, kPastValue, kStarts, kLengths, kSlots, kCos, kSin, kSinks, kRead, kParents, kInputs };

long long number(int64_t value) { return static_cast<long long>(value); }

struct Attention {
  int64_t heads = 0, kv_heads = 0, window = -1, rotary = 0, interleaved = 0;
  float scale = 0, softcap = 0;

  OrtStatus* make(const OrtKernelInfo* info) {
    TRY(attribute(info, "num_heads", &heads));
    TRY(attribute(info, "kv_num_heads", &kv_heads));
    TRY(attribute(info, "local_window_size", &window, -1));
    TRY(attribute(info, "do_rotary", &rotary, 0));
    TRY(attribute(info, "rotary_interleaved", &interleaved, 0));
    TRY(attribute(info, "scale", &scale, 0.0f));
    TRY(attribute(info, "softcap", &softcap, 0.0f));
    constexpr int64_t most = 1 << 16;
    if (heads < 1 || kv_heads < 1 || heads > most || heads % kv_heads)
      return fail("num_heads = %lld, kv_num_heads = %lld: the first must be a multiple of the second, 1 to %lld", number(heads), number(kv_heads), number(most));
    if (window != -1 && window < 1) return fail("local_window_size = %lld, it must be -1 (none) or at least 1", number(window));
    if (!std::isfinite(scale)) return fail("scale = %g, it must be finite (0: 1 / sqrt(head size))", static_cast<double>(scale));
    if (!(softcap >= 0) || !std::isfinite(softcap)) return fail("softcap = %g, it must be at least 0 (0: none)", static_cast<double>(softcap));
    return nullptr;
  }

  OrtStatus* compute(OrtKernelContext* context) {
    Tensor in[kInputs];
    for (size_t i = 0; i < kInputs; i++) TRY(input(context, i, &in[i]));
    AttentionPass pass{};
    TRY(check_caches(in, &pass));
    TRY(check_rows(in, &pass));
    TRY(check_sequences(in, &pass));
    TRY(check_rotary(in, &pass));
    TRY(check_rest(in, &pass));

    const int64_t dims[3] = {1, in[kQuery].dims[1], heads * in[kPastKey].dims[3]};
    void* result = nullptr;
    TRY(output(context, 0, dims, 3, &result));
    pass.output = static_cast<float*>(result);
    TRY(present(context, 1, in[kPastKey], &pass.keys));
    TRY(present(context, 2, in[kPastValue], &pass.values));
    return run_attention(context, pass);
  }

 private:
  // Caches [S, kv_heads, C, D], both of one shape.
  OrtStatus* check_caches(const Tensor* in, AttentionPass* pass) const {
    const Tensor &keys = in[kPastKey], &values = in[kPastValue];
    if (keys.rank != 4 || keys.dims[1] != kv_heads || !keys.count)
      return fail("past_key must have the shape [slots, %lld, capacity, head size], none of them 0", number(kv_heads));
    TRY(check_shape("past_value", values, {keys.dims[0], keys.dims[1], keys.dims[2], keys.dims[3]}));
    pass->heads = static_cast<size_t>(heads);
    pass->kv_heads = static_cast<size_t>(kv_heads);
    pass->capacity = static_cast<size_t>(keys.dims[2]);
    pass->head_size = static_cast<size_t>(keys.dims[3]);
    pass->half = keys.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16;
    if (pass->head_size > 1 << 12) return fail("head size %zu, at most %d are allowed", pass->head_size, 1 << 12);
    pass->scale = scale != 0 ? scale : 1 / std::sqrt(static_cast<float>(pass->head_size));
    pass->softcap = softcap;
    pass->window = window < 0 ? 0 : static_cast<size_t>(window);
    return nullptr;
  }

  // Query, key and value of T tokens, or all three side by side in query.
  OrtStatus* check_rows(const Tensor* in, AttentionPass* pass) const {
    const Tensor &query = in[kQuery], &key = in[kKey], &value = in[kValue];
    const bool packed = key.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    if (packed != (value.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED)) return fail("key and value must both be given, or neither (packed in query)");
    const int64_t size = in[kPastKey].dims[3], tokens = query.rank == 3 ? query.dims[1] : 0;
    TRY(check_shape("query", query, {1, tokens, (packed ? heads + 2 * kv_heads : heads) * size}));
    if (tokens < 1) return fail("query has no rows");
    pass->tokens = static_cast<size_t>(tokens);
    pass->query = query.as<float>();
    pass->query_stride = static_cast<size_t>(query.dims[2]);
    if (packed) {
      pass->key = pass->query + heads * size;
      pass->value = pass->key + kv_heads * size;
      pass->key_stride = pass->query_stride;
      return nullptr;
    }
    TRY(check_shape("key", key, {1, tokens, kv_heads * size}));
    TRY(check_shape("value", value, {1, tokens, kv_heads * size}));
    pass->key = key.as<float>();
    pass->value = value.as<float>();
    pass->key_stride = static_cast<size_t>(kv_heads * size);
    return nullptr;
  }

  // Which rows are whose: starts rising from 0 to T, room in the cache, slots distinct and in range.
  OrtStatus* check_sequences(const Tensor* in, AttentionPass* pass) const {
    const int64_t slots = in[kPastKey].dims[0], capacity = in[kPastKey].dims[2];
    const int64_t count = in[kLengths].rank == 1 ? in[kLengths].dims[0] : 0;
    if (count < 1 || count > slots) return fail("past_lengths must have the shape [sequences], 1 to %lld (the cache's slots)", number(slots));
    TRY(check_shape("query_starts", in[kStarts], {count + 1}));
    TRY(check_shape("slots", in[kSlots], {count}));
    const int32_t *starts = in[kStarts].as<int32_t>(), *lengths = in[kLengths].as<int32_t>(), *slot = in[kSlots].as<int32_t>();
    const int64_t tokens = static_cast<int64_t>(pass->tokens);
    if (starts[0] != 0 || starts[count] != tokens)
      return fail("query_starts goes from %d to %d, it must go from 0 to %lld (the rows)", starts[0], starts[count], number(tokens));
    for (int64_t s = 0; s < count; s++) {
      if (starts[s + 1] <= starts[s] || starts[s + 1] > tokens)
        return fail("query_starts must rise: %d is followed by %d (sequence %lld)", starts[s], starts[s + 1], number(s));
      if (lengths[s] < 0 || int64_t{lengths[s]} + starts[s + 1] - starts[s] > capacity)
        return fail("sequence %lld has %d cached tokens and %d new ones, the cache holds 0 to %lld", number(s), lengths[s], starts[s + 1] - starts[s], number(capacity));
      if (slot[s] < 0 || slot[s] >= slots) return fail("slots[%lld] is %d, it must be in 0..%lld", number(s), slot[s], number(slots - 1));
      for (int64_t other = 0; other < s; other++)
        if (slot[other] == slot[s]) return fail("slot %d is used by the sequences %lld and %lld, slots must be distinct", slot[s], number(other), number(s));
    }
    pass->sequences = static_cast<size_t>(count);
    pass->starts = starts;
    pass->lengths = lengths;
    pass->slots = slot;
    return nullptr;
  }

  // Tables of angles: a row a position, for every position of this pass.
  OrtStatus* check_rotary(const Tensor* in, AttentionPass* pass) const {
    const Tensor &cos = in[kCos], &sin = in[kSin];
    if (!rotary) {
      if (cos.data || sin.data) return fail("cos_cache and sin_cache are given, but do_rotary is 0");
      return nullptr;
    }
    const int64_t size = in[kPastKey].dims[3], half = cos.rank == 2 ? cos.dims[1] : 0;
    if (half < 1 || 2 * half > size) return fail("do_rotary needs cos_cache [positions, rotary size / 2], with at most %lld columns", number(size / 2));
    TRY(check_shape("sin_cache", sin, {cos.dims[0], half}));
    for (size_t s = 0; s < pass->sequences; s++) {
      const int64_t end = int64_t{pass->lengths[s]} + pass->starts[s + 1] - pass->starts[s];
      if (end > cos.dims[0]) return fail("cos_cache has %lld positions, sequence %zu needs %lld", number(cos.dims[0]), s, number(end));
    }
    pass->rotary_dim = static_cast<size_t>(2 * half);
    pass->interleaved = interleaved != 0;
    pass->cos = cos.as<float>();
    pass->sin = sin.as<float>();
    return nullptr;
  }

  OrtStatus* check_rest(const Tensor* in, AttentionPass* pass) const {
    if (in[kSinks].data) {
      TRY(check_shape("sinks", in[kSinks], {heads}));
      pass->sinks = in[kSinks].as<float>();
    }
    if (in[kRead].data) {
      TRY(check_shape("read", in[kRead], {2}));
      const int32_t* read = in[kRead].as<int32_t>();
      if (read[0] < 0 || read[1] < 0) return fail("read is [%d, %d], neither may be below 0 ([0, 0]: all)", read[0], read[1]);
      pass->read_first = static_cast<size_t>(read[0]);
      pass->read_last = static_cast<size_t>(read[1]);
    }
    if (in[kParents].data) {
      TRY(check_shape("parents", in[kParents], {static_cast<int64_t>(pass->tokens)}));
      pass->parents = in[kParents].as<int32_t>();
      for (size_t s = 0; s < pass->sequences; s++)
        for (int32_t i = 0; i < pass->starts[s + 1] - pass->starts[s]; i++) {
          const int32_t parent = pass->parents[pass->starts[s] + i];
          if (parent < -1 || parent >= i) return fail("parents[%d] is %d, it must be in -1..%d (rows of the same sequence before it)", pass->starts[s] + i, parent, i - 1);
        }
    }
    return nullptr;
  }

  // The caller binds a cache's output to the memory of its input; elsewhere the whole cache is copied.
  static OrtStatus* present(OrtKernelContext* context, size_t index, const Tensor& past, void** data) {
    TRY(output(context, index, past.dims, past.rank, data));
    if (*data != past.data) std::memcpy(*data, past.data, past.count * (past.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16 ? 2 : 4));
    return nullptr;
  }
};

template <ONNXTensorElementDataType Cache>
const OrtCustomOp* attention() {
  constexpr auto kFloat = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, kInt = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32;
  static const Port inputs[kInputs] = {{kFloat},      {kFloat, true}, {kFloat, true}, {Cache},       {Cache},      {kInt},      {kInt},
                                       {kInt},        {kFloat, true}, {kFloat, true}, {kFloat, true}, {kInt, true}, {kInt, true}};
  static const Port outputs[] = {{kFloat}, {Cache}, {Cache}};
  static const Operator op = make_operator<Attention>("Attention", inputs, outputs);
  return &op;
}

}  // namespace

const OrtCustomOp* attention_float() { return attention<ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT>(); }
const OrtCustomOp* attention_fp16() { return attention<ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16>(); }

}  // namespace specdec
