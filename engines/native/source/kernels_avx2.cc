// The table of avx2.
#include "vec_avx2.h"

#include "blocks.h"
#include "fp16.h"

const specdec::Kernels specdec::kernels_avx2 = {"avx2", fp16, blocks, norm, quantize};
