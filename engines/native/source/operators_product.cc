// Products over packed weights, with what stands around them in a layer: the RMS norm before, the
// gate, bias and residual after.
#include <atomic>
#include <cstring>

#include "isa.h"
#include "operators.h"
#include "packed.h"
#include "scratch.h"

namespace specdec {
namespace {

constexpr size_t kRowBlock = 132;         // rows whose activations stay in the second cache
constexpr size_t kChunkBytes = 32 << 10;  // least weights that are worth a part of a parallel loop
constexpr size_t kMostChunks = 64;        // ONNX Runtime does not say how many threads there are

OrtStatus* activation_of(const OrtKernelInfo* info, Activation* out) {
  char text[16];
  TRY(attribute(info, "activation", text, sizeof text));
  static const struct {
    const char* name;
    Activation kind;
  } known[] = {{"", Activation::kNone}, {"silu", Activation::kSilu}, {"gelu", Activation::kGelu}, {"gelu_tanh", Activation::kGeluTanh}};
  for (const auto& one : known)
    if (!strcmp(text, one.name)) {
      *out = one.kind;
      return nullptr;
    }
  return fail("activation is \"%s\", it must be \"\", \"silu\", \"gelu\" or \"gelu_tanh\"", text);
}

// What both products have in common: [norm], bias, residual, gate, and the shape of rows.
struct Around {
  const Kernels* kernels = chosen().kernels;
  Activation activation = Activation::kNone;
  const float *bias = nullptr, *gamma = nullptr;
  float epsilon = 0.0f;
  size_t residual_index = 0;

  bool gated() const { return activation != Activation::kNone; }

  // index: of bias; residual and gamma follow.
  OrtStatus* make(const OrtKernelInfo* info, size_t index, int64_t n, int64_t k) {
    Tensor tensor;
    TRY(optional_constant(info, index, "bias", &tensor));
    if (tensor.present()) TRY(check_shape("bias", tensor, {gated() ? 2 * n : n}));
    bias = tensor.as<float>();
    residual_index = index + 1;
    TRY(optional_constant(info, index + 2, "gamma", &tensor));
    if (tensor.present()) TRY(check_shape("gamma", tensor, {k}));
    gamma = tensor.as<float>();
    if (!gamma) return nullptr;
    TRY(attribute(info, "epsilon", &epsilon, -1.0f));
    return epsilon >= 0.0f ? nullptr : fail("with gamma the attribute epsilon must be given, 0 or more");
  }

  // Reads A and the residual, makes the output.
  OrtStatus* begin(OrtKernelContext* context, int64_t n, int64_t k, const float** a, size_t* rows, Output* out) const {
    Tensor x, residual;
    TRY(input(context, 0, &x));
    if (!x.rank || x.last() != k)
      return fail("the last dimension of A is %lld, it must be K = %lld", static_cast<long long>(x.last()), static_cast<long long>(k));
    TRY(input(context, residual_index, &residual));
    *rows = x.count / static_cast<size_t>(k);
    *a = x.as<float>();
    x.dims[x.rank - 1] = n;
    if (residual.present() && (residual.rank != x.rank || memcmp(residual.dims, x.dims, x.rank * sizeof x.dims[0])))
      return fail("the residual's shape is not that of the output, [..., N = %lld]", static_cast<long long>(n));
    void* c = nullptr;
    TRY(output(context, 0, x.dims, x.rank, &c));
    *out = Output{static_cast<float*>(c), bias, residual.as<float>(), static_cast<size_t>(n), activation};
    return nullptr;
  }

  // Calls run(first panel, last panel, row0, row1) until every panel of every row is done.
  template <class Run>
  OrtStatus* loop(OrtKernelContext* context, size_t rows, size_t panels, size_t panel_bytes, const Run& run) const {
    size_t row_blocks = (rows + kRowBlock - 1) / kRowBlock, items = row_blocks * panels;
    size_t work = panel_bytes * (gated() ? 2 : 1) * (rows < 4 ? 1 : (rows + 3) / 4);
    size_t chunks = panels * work / kChunkBytes;
    if (chunks > kMostChunks) chunks = kMostChunks;
    std::atomic<bool> done{true};
    TRY(parallel(context, items, chunks, [&](size_t first, size_t last) {
      while (first < last) {
        size_t q = first / panels, end = last < (q + 1) * panels ? last : (q + 1) * panels;
        if (!run(first - q * panels, end - q * panels, rows * q / row_blocks, rows * (q + 1) / row_blocks)) done = false;
        first = end;
      }
    }));
    return done ? nullptr : fail("no memory for a product's work space");
  }
};

// Work on single rows, in parallel where there are many.
template <class Row>
OrtStatus* each_row(OrtKernelContext* context, size_t rows, size_t k, const Row& row) {
  return parallel(context, rows, rows * k / (16 << 10), [&](size_t first, size_t last) {
    for (size_t r = first; r < last; r++) row(r);
  });
}

struct MatMulFp16 {
  Around around;
  int64_t n = 0, k = 0;
  const uint16_t* b = nullptr;

  OrtStatus* make(const OrtKernelInfo* info) {
    TRY(activation_of(info, &around.activation));
    TRY(fp16_panels(info, 1, around.gated(), &n, &k, &b));
    return around.make(info, 2, n, k);
  }

  OrtStatus* compute(OrtKernelContext* context) {
    static thread_local Scratch scratch;
    const Kernels* kernels = around.kernels;
    size_t rows = 0, depth = static_cast<size_t>(k);
    const float* a = nullptr;
    Output out{};
    TRY(around.begin(context, n, k, &a, &rows, &out));
    if (around.gamma) {
      float* normed = scratch.take<float>(rows * depth);
      if (!normed) return fail("no memory for %zu normed rows", rows);
      TRY(each_row(context, rows, depth, [&](size_t r) {
        kernels->norm(a + r * depth, around.gamma, around.epsilon, depth, normed + r * depth);
      }));
      a = normed;
    }
    Fp16Job job{a, b, depth, out};
    return around.loop(context, rows, (out.n + kFp16Columns - 1) / kFp16Columns, depth * kFp16Columns * 2,
                       [&](size_t first, size_t last, size_t row0, size_t row1) { return kernels->fp16(job, first, last, row0, row1); });
  }
};

struct MatMulBlocks {
  Around around;
  PackedBlocks w;

  OrtStatus* make(const OrtKernelInfo* info) {
    TRY(activation_of(info, &around.activation));
    TRY(w.make(info, 1, 3, around.gated()));
    return around.make(info, 4, w.n, w.k);
  }

  OrtStatus* compute(OrtKernelContext* context) {
    static thread_local Scratch scratch, norm_scratch;
    const Kernels* kernels = around.kernels;
    size_t rows = 0, depth = static_cast<size_t>(w.k), block = static_cast<size_t>(w.block), blocks = w.blocks();
    const float* a = nullptr;
    Output out{};
    TRY(around.begin(context, w.n, w.k, &a, &rows, &out));
    size_t row_bytes = depth + blocks * 8;
    int8_t* q = scratch.take<int8_t>(rows * row_bytes);
    float* normed = around.gamma ? norm_scratch.take<float>(rows * depth) : nullptr;
    if (!q || (around.gamma && !normed)) return fail("no memory for %zu quantized rows", rows);
    float* scale = reinterpret_cast<float*>(q + rows * depth);  // depth is a multiple of 32
    int32_t* sum = reinterpret_cast<int32_t*>(scale + rows * blocks);
    bool four = w.bits == 4;
    TRY(each_row(context, rows, depth, [&](size_t r) {
      const float* x = a + r * depth;
      if (normed) {
        kernels->norm(x, around.gamma, around.epsilon, depth, normed + r * depth);
        x = normed + r * depth;
      }
      kernels->quantize(x, depth, block, four, q + r * depth, scale + r * blocks, sum + r * blocks);
    }));
    BlocksJob job{q, scale, sum, w.b, w.scale, w.zero, depth, block, four, w.scale_fp16, out};
    return around.loop(context, rows, (out.n + kBlockColumns - 1) / kBlockColumns, depth * kBlockColumns * static_cast<size_t>(w.bits) / 8,
                       [&](size_t first, size_t last, size_t row0, size_t row1) { return kernels->blocks(job, first, last, row0, row1); });
  }
};

constexpr Port kFloat{ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT}, kMaybe{ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, true};
const Port kResult[] = {kFloat};

}  // namespace

const OrtCustomOp* matmul_fp16() {
  static const Port inputs[] = {kFloat, {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16}, kMaybe, kMaybe, kMaybe};
  static const Operator op = make_operator<MatMulFp16>("MatMulFp16", inputs, kResult);
  return &op;
}

const OrtCustomOp* matmul_blocks() {
  static const Port inputs[] = {kFloat, {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8}, {ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED},
                                {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8, true}, kMaybe, kMaybe, kMaybe};
  static const Operator op = make_operator<MatMulBlocks>("MatMulBlocks", inputs, kResult);
  return &op;
}

}  // namespace specdec
