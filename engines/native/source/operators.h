// The operators of the domain "specdec", version 1.
#pragma once
#include "ort.h"

namespace specdec {

const OrtCustomOp* gather_fp16();    // operators_gather.cc
const OrtCustomOp* gather_blocks();
const OrtCustomOp* matmul_fp16();    // operators_product.cc
const OrtCustomOp* matmul_blocks();
const OrtCustomOp* attention_float();  // operators_attention.cc; with caches in float32
const OrtCustomOp* attention_fp16();

}  // namespace specdec
