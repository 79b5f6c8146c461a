// The table of avx512.
#include "vec_avx512.h"

#include "blocks.h"
#include "fp16.h"

const specdec::Kernels specdec::kernels_avx512 = {"avx512", fp16, blocks, norm, quantize};
