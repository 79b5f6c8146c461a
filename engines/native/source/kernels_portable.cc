// The table of portable.
#include "vec_portable.h"

#include "blocks.h"
#include "fp16.h"

const specdec::Kernels specdec::kernels_portable = {"portable", fp16, blocks, norm, quantize};
