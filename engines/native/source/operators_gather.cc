// Rows of packed weights by their numbers: the embedding that is stored in the head's panels.
#include "half.h"
#include "operators.h"
#include "packed.h"

namespace specdec {
namespace {

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

  OrtStatus* make(const OrtKernelInfo* info) { return fp16_panels(info, 0, false, &n, &k, &b); }

  OrtStatus* compute(OrtKernelContext* context) {
    return gather(context, 1, n, k, [&](size_t id, float* to) {
      size_t count = static_cast<size_t>(k);
      const uint16_t* from = b + id / kFp16Columns * count * kFp16Columns + id % kFp16Columns;
      for (size_t i = 0; i < count; i++) to[i] = half_to_float(from[i * kFp16Columns]);
    });
  }
};

struct GatherBlocks {
  PackedBlocks w;

  OrtStatus* make(const OrtKernelInfo* info) { return w.make(info, 0, 3, false); }

  OrtStatus* compute(OrtKernelContext* context) {
    return gather(context, 2, w.n, w.k, [&](size_t id, float* to) { row(id / kBlockColumns, id % kBlockColumns, to); });
  }

  void row(size_t panel, size_t column, float* to) const {
    bool four = w.bits == 4;
    size_t blocks = w.blocks(), block = static_cast<size_t>(w.block), groups = block * static_cast<size_t>(w.bits) / 32;
    for (size_t q = 0; q < blocks; q++) {
      size_t at = (panel * blocks + q) * kBlockColumns + column;
      float scale = w.scale_fp16 ? half_to_float(static_cast<const uint16_t*>(w.scale)[at]) : static_cast<const float*>(w.scale)[at];
      int zero = four ? 8 : 128;
      if (w.zero && four)
        zero = w.zero[(panel * ((blocks + 1) / 2) + q / 2) * kBlockColumns + column] >> (q & 1 ? 4 : 0) & 15;
      else if (w.zero)
        zero = w.zero[at];
      for (size_t g = 0; g < groups; g++) {
        const uint8_t* from = w.b + (((panel * blocks + q) * groups + g) * kBlockColumns + column) * 4;
        for (size_t i = 0; i < 4; i++)
          if (four) {
            *to++ = scale * static_cast<float>((from[i] & 15) - zero);
            *to++ = scale * static_cast<float>((from[i] >> 4) - zero);
          } else {
            *to++ = scale * static_cast<float>(from[i] - zero);
          }
      }
    }
  }
};

constexpr Port kFloat{ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT}, kIds{ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64};
const Port kResult[] = {kFloat};

}  // namespace

const OrtCustomOp* gather_fp16() {
  static const Port inputs[] = {{ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16}, kIds};
  static const Operator op = make_operator<GatherFp16>("GatherFp16", inputs, kResult);
  return &op;
}

const OrtCustomOp* gather_blocks() {
  static const Port inputs[] = {{ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8}, {ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED}, kIds,
                                {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8, true}};
  static const Operator op = make_operator<GatherBlocks>("GatherBlocks", inputs, kResult);
  return &op;
}

}  // namespace specdec
