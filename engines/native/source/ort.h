// Helpers around ONNX Runtime's C interface: errors, inputs, outputs, attributes, parallel loops.
// Nothing throws and nothing is read from the environment here.
#pragma once
#define ORT_API_MANUAL_INIT
#include "onnxruntime/onnxruntime_c_api.h"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <new>

namespace specdec {

extern const OrtApi* api;  // set by RegisterCustomOps, the same for every session of a process

// A status that carries one formatted line, which ONNX Runtime raises with the node's name.
__attribute__((format(printf, 1, 2))) OrtStatus* fail(const char* format, ...);

#define TRY(expression)                                   \
  do {                                                    \
    if (OrtStatus* status_ = (expression)) return status_; \
  } while (0)

constexpr size_t kMaxRank = 8;

// A tensor: of an input or a constant input. data is null where an optional one is absent (or empty).
struct Tensor {
  const void* data = nullptr;
  int64_t dims[kMaxRank + 1] = {};
  size_t rank = 0;
  size_t count = 0;  // elements
  ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;

  template <class T>
  const T* as() const { return static_cast<const T*>(data); }
  bool present() const { return type != ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED; }
  int64_t last() const { return rank ? dims[rank - 1] : 1; }
  bool is(std::initializer_list<int64_t> shape) const;
};

// Inputs at compute time and, where the graph holds an initializer, when the kernel is made.
OrtStatus* input(OrtKernelContext* context, size_t index, Tensor* out);
OrtStatus* constant(const OrtKernelInfo* info, size_t index, const char* name, Tensor* out);
OrtStatus* optional_constant(const OrtKernelInfo* info, size_t index, const char* name, Tensor* out);
OrtStatus* output(OrtKernelContext* context, size_t index, const int64_t* dims, size_t rank, void** data);

OrtStatus* attribute(const OrtKernelInfo* info, const char* name, int64_t* out);
OrtStatus* attribute(const OrtKernelInfo* info, const char* name, int64_t* out, int64_t otherwise);
OrtStatus* attribute(const OrtKernelInfo* info, const char* name, float* out, float otherwise);
// Fills text (size bytes with the ending zero); "" where the node has no such attribute.
OrtStatus* attribute(const OrtKernelInfo* info, const char* name, char* text, size_t size);

// N and K of a product: both at least 1 and small enough that no size computed from them overflows.
OrtStatus* check_sizes(int64_t n, int64_t k);
// "B has the shape [1, 2], it must be [3, 4]".
OrtStatus* check_shape(const char* name, const Tensor& tensor, std::initializer_list<int64_t> shape);

// body(first, last) over parts of [0, items), on the session's threads. chunks: how many parts.
template <class Body>
OrtStatus* parallel(OrtKernelContext* context, size_t items, size_t chunks, const Body& body) {
  if (chunks > items) chunks = items;
  if (chunks <= 1) {
    if (items) body(size_t(0), items);
    return nullptr;
  }
  struct Loop {
    const Body* body;
    size_t items, chunks;
  } loop{&body, items, chunks};
  auto one = [](void* self, size_t i) {
    const Loop* l = static_cast<const Loop*>(self);
    (*l->body)(l->items * i / l->chunks, l->items * (i + 1) / l->chunks);
  };
  return api->KernelContext_ParallelFor(context, one, chunks, 0, &loop);
}

// An operator of the domain: Kernel has make(info) and compute(context), both return a status.
struct Port {
  ONNXTensorElementDataType type;  // UNDEFINED: any type, checked by the kernel
  bool optional = false;
};
struct Operator : OrtCustomOp {
  const char* name;
  const Port* ports;
  size_t port_count;
  const Port* results;
  size_t result_count;
};
void describe(Operator* op);  // the callbacks that are the same for every operator

template <class Kernel, size_t Inputs, size_t Outputs>
Operator make_operator(const char* name, const Port (&ports)[Inputs], const Port (&results)[Outputs]) {
  Operator op{};
  op.name = name;
  op.ports = ports;
  op.port_count = Inputs;
  op.results = results;
  op.result_count = Outputs;
  describe(&op);
  op.CreateKernelV2 = [](const OrtCustomOp*, const OrtApi*, const OrtKernelInfo* info,
                         void** out) -> OrtStatusPtr {
    Kernel* kernel = new (std::nothrow) Kernel;
    if (!kernel) return fail("no memory for a kernel");
    if (OrtStatus* status = kernel->make(info)) {
      delete kernel;
      return status;
    }
    *out = kernel;
    return nullptr;
  };
  op.KernelComputeV2 = [](void* kernel, OrtKernelContext* context) -> OrtStatusPtr {
    return static_cast<Kernel*>(kernel)->compute(context);
  };
  op.KernelDestroy = [](void* kernel) { delete static_cast<Kernel*>(kernel); };
  return op;
}

}  // namespace specdec
