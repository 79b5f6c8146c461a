// The table of AVX2 with AVX-VNNI: the source of AVX2, compiled with one flag more.
#include "vec_avx2.h"

#include "blocks.h"
#include "fp16.h"

const specdec::Kernels specdec::kernels_avx2vnni = {"avx2-vnni", fp16, blocks, norm, quantize};
