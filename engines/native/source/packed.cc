// Packed weights of a node.
#include "packed.h"

namespace specdec {

OrtStatus* fp16_panels(const OrtKernelInfo* info, size_t index, bool gated, int64_t* n, int64_t* k, const uint16_t** b) {
  TRY(attribute(info, "N", n));
  TRY(attribute(info, "K", k));
  TRY(check_sizes(*n, *k));
  int64_t columns = kFp16Columns, panels = (*n + columns - 1) / columns;
  Tensor weights;
  TRY(constant(info, index, "B", &weights));
  TRY(check_shape("B", weights, {gated ? 2 * panels : panels, *k, columns}));
  *b = weights.as<uint16_t>();
  return nullptr;
}

OrtStatus* PackedBlocks::make(const OrtKernelInfo* info, size_t b_index, size_t zero_index, bool gated) {
  TRY(attribute(info, "N", &n));
  TRY(attribute(info, "K", &k));
  TRY(attribute(info, "bits", &bits));
  TRY(attribute(info, "block_size", &block));
  TRY(check_sizes(n, k));
  if (bits != 8 && bits != 4) return fail("bits is %lld, it must be 8 or 4", static_cast<long long>(bits));
  if (block != 32 && block != 64 && block != 128)
    return fail("block_size is %lld, it must be 32, 64 or 128", static_cast<long long>(block));
  if (k % block) return fail("K = %lld is not a multiple of block_size = %lld", static_cast<long long>(k), static_cast<long long>(block));
  int64_t columns = kBlockColumns, panels = (n + columns - 1) / columns * (gated ? 2 : 1), count = k / block;
  Tensor tensor;
  TRY(constant(info, b_index, "B", &tensor));
  TRY(check_shape("B", tensor, {panels, count, block * bits / 32, columns, 4}));
  b = tensor.as<uint8_t>();
  TRY(constant(info, b_index + 1, "scales", &tensor));
  TRY(check_shape("scales", tensor, {panels, count, columns}));
  if (tensor.type != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT && tensor.type != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16)
    return fail("scales must be FP32 or FP16");
  scale = tensor.data;
  scale_fp16 = tensor.type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16;
  TRY(optional_constant(info, zero_index, "zero_points", &tensor));
  if (tensor.present()) TRY(check_shape("zero_points", tensor, {panels, (count * bits + 7) / 8, columns}));
  zero = tensor.as<uint8_t>();
  return nullptr;
}

}  // namespace specdec
