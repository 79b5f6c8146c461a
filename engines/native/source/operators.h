// The operators of the domain "specdec", version 1.
#pragma once
#include "ort.h"

namespace specdec {

const OrtCustomOp* gather_fp16();
const OrtCustomOp* attention_float();  // with caches in float32
const OrtCustomOp* attention_fp16();

}  // namespace specdec
