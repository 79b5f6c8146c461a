// The operators of the domain "specdec", version 1.
#pragma once
#include "ort.h"

namespace specdec {

const OrtCustomOp* gather_fp16();

}  // namespace specdec
