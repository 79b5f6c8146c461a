// Rows of packed weights by their numbers: the embedding that is stored in the head's panels.
#include <cstring>

#include "kernels.h"
#include "operators.h"

namespace specdec {
namespace {

float widen(uint16_t h) {
  uint32_t sign = (h & 0x8000u) << 16, exponent = h >> 10 & 31, mantissa = h & 1023, bits;
  float value;
  if (exponent == 31) {
    bits = sign | 0x7f800000u | mantissa << 13;
  } else if (exponent) {
    bits = sign | (exponent + 112) << 23 | mantissa << 13;
  } else {
    value = static_cast<float>(mantissa) * 5.9604644775390625e-8f;  // 2^-24
    memcpy(&bits, &value, 4);
    bits |= sign;
  }
  memcpy(&value, &bits, 4);
  return value;
}

// Checks ids, makes the output [..., k] and calls row(id, to) for each.
template <class Row>
OrtStatus* gather(OrtKernelContext* context, size_t index, int64_t n, int64_t k, const Row& row) {
  Tensor ids;
  TRY(input(context, index, &ids));
  if (ids.rank == kMaxRank) return fail("ids have %zu dimensions, at most %zu are allowed", ids.rank, kMaxRank - 1);
  ids.dims[ids.rank] = k;
  void* to = nullptr;
  TRY(output(context, 0, ids.dims, ids.rank + 1, &to));
  const int64_t* id = ids.as<int64_t>();
  for (size_t i = 0; i < ids.count; i++) {
    if (id[i] < 0 || id[i] >= n) return fail("id %lld is not in 0..%lld", static_cast<long long>(id[i]), static_cast<long long>(n - 1));
    row(static_cast<size_t>(id[i]), static_cast<float*>(to) + i * static_cast<size_t>(k));
  }
  return nullptr;
}

struct GatherFp16 {
  int64_t n = 0, k = 0;
  const uint16_t* b = nullptr;

  OrtStatus* make(const OrtKernelInfo* info) {
    TRY(attribute(info, "N", &n));
    TRY(attribute(info, "K", &k));
    TRY(check_sizes(n, k));
    Tensor weights;
    TRY(constant(info, 0, "B", &weights));
    TRY(check_shape("B", weights, {(n + 31) / 32, k, 32}));
    b = weights.as<uint16_t>();
    return nullptr;
  }

  OrtStatus* compute(OrtKernelContext* context) {
    return gather(context, 1, n, k, [&](size_t id, float* to) {
      size_t count = static_cast<size_t>(k);
      const uint16_t* from = b + id / kFp16Columns * count * kFp16Columns + id % kFp16Columns;
      for (size_t i = 0; i < count; i++) to[i] = widen(from[i * kFp16Columns]);
    });
  }
};

}  // namespace

const OrtCustomOp* gather_fp16() {
  static const Port inputs[] = {{ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16}, {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64}};
  static const Port outputs[] = {{ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT}};
  static const Operator op = make_operator<GatherFp16>("GatherFp16", inputs, outputs);
  return &op;
}

}  // namespace specdec
