// The table of neon.
#include "vec_neon.h"

#include "blocks.h"
#include "fp16.h"

const specdec::Kernels specdec::kernels_neon = {"neon", fp16, blocks, norm, quantize};
