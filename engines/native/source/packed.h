// Packed weights of a node: reads the inputs and attributes that say them, and checks every size.
#pragma once
#include "kernels.h"
#include "ort.h"

namespace specdec {

// 8-bit or 4-bit blocks of N rows of K weights; panels: of all rows, twice as many when gated.
struct PackedBlocks {
  int64_t n = 0, k = 0, bits = 0, block = 0;
  const uint8_t* b = nullptr;
  const void* scale = nullptr;
  bool scale_fp16 = false;
  const uint8_t* zero = nullptr;

  // Inputs at index b: B, at b + 1: scales, at zero: zero points (optional).
  OrtStatus* make(const OrtKernelInfo* info, size_t b_index, size_t zero_index, bool gated);
  size_t blocks() const { return static_cast<size_t>(k / block); }
};

// FP16 panels; index: of the input B.
OrtStatus* fp16_panels(const OrtKernelInfo* info, size_t index, bool gated, int64_t* n, int64_t* k, const uint16_t** b);

}  // namespace specdec
