// The kernels of products over packed weights: plain jobs, and one table an instruction set.
// Nothing here knows ONNX Runtime. The kernels trust the sizes; the operators check them.
#pragma once
#include <cstddef>
#include <cstdint>

namespace specdec {

enum class Activation { kNone, kSilu, kGelu, kGeluTanh };

// What a product does with its sums: c = sums + bias + residual, or c = activation(gate) * up.
struct Output {
  float* c;               // rows of n
  const float* bias;      // n values (gated: gates' n, then ups' n), or null
  const float* residual;  // rows of n, or null
  size_t n;
  Activation activation;  // not kNone: panels alternate gate, up; n is that of the result
};

// FP16 panel: [k][32] values of 32 consecutive outputs; the last panel is padded with zeros.
struct Fp16Job {
  const float* a;     // rows of k
  const uint16_t* b;  // panels
  size_t k;
  Output out;
};
constexpr size_t kFp16Columns = 32;

// Blocks: panel of 16 outputs: [k / block][block * bits / 32][16][4] bytes. A byte is one weight of
// 8 bits, or two of 4 (even k low, odd k high).
struct BlocksJob {
  const int8_t* a;       // rows of k, quantized; with 4-bit weights each 8 as 0 2 4 6 1 3 5 7
  const float* a_scale;  // rows of k / block
  const int32_t* a_sum;  // rows of k / block: sums of the block's values
  const uint8_t* b;
  const void* scale;         // [panel][k / block][16], FP32 or FP16
  const uint8_t* zero;       // [panel][ceil(k / block * bits / 8)][16], or null: 128 or 8
  size_t k, block;
  bool four_bits, scale_fp16;
  Output out;
};
constexpr size_t kBlockColumns = 16;

struct Kernels {
  const char* name;
  // Panels [first, last) of the result for rows [row0, row1). False: no memory.
  bool (*fp16)(const Fp16Job& job, size_t first, size_t last, size_t row0, size_t row1);
  bool (*blocks)(const BlocksJob& job, size_t first, size_t last, size_t row0, size_t row1);
  // y = x * rsqrt(mean(x^2) + epsilon) * gamma; k values.
  void (*norm)(const float* x, const float* gamma, float epsilon, size_t k, float* y);
  // One row to 8 bits a block: scale = max|x| / 127, q = round(x / scale).
  void (*quantize)(const float* x, size_t k, size_t block, bool four_bits, int8_t* q, float* scale, int32_t* sum);
};

#if defined(__x86_64__)
extern const Kernels kernels_avx512, kernels_avx2vnni, kernels_avx2;
#elif defined(__aarch64__)
extern const Kernels kernels_neon;
#endif

}  // namespace specdec
