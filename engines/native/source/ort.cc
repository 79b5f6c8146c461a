// Helpers around ONNX Runtime's C interface.
#include "ort.h"

#include <cstdarg>
#include <cstdio>

namespace specdec {

const OrtApi* api = nullptr;

OrtStatus* fail(const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return api->CreateStatus(ORT_INVALID_ARGUMENT, text);
}

bool Tensor::is(std::initializer_list<int64_t> shape) const {
  if (shape.size() != rank) return false;
  size_t i = 0;
  for (int64_t dim : shape)
    if (dims[i++] != dim) return false;
  return true;
}

namespace {
OrtStatus* read(const OrtValue* value, Tensor* out) {
  OrtTensorTypeAndShapeInfo* info = nullptr;
  TRY(api->GetTensorTypeAndShape(value, &info));
  OrtStatus* status = api->GetDimensionsCount(info, &out->rank);
  if (!status && out->rank > kMaxRank) status = fail("a tensor has %zu dimensions, at most %zu are allowed", out->rank, kMaxRank);
  if (!status) status = api->GetDimensions(info, out->dims, out->rank);
  if (!status) status = api->GetTensorElementType(info, &out->type);
  if (!status) status = api->GetTensorShapeElementCount(info, &out->count);
  api->ReleaseTensorTypeAndShapeInfo(info);
  if (status) return status;
  void* data = nullptr;
  TRY(api->GetTensorMutableData(const_cast<OrtValue*>(value), &data));
  out->data = data;
  return nullptr;
}

// Whether the node has the attribute; an absent one is an error of the C interface.
bool absent(OrtStatus* status) {
  if (!status) return false;
  api->ReleaseStatus(status);
  return true;
}
}  // namespace

OrtStatus* input(OrtKernelContext* context, size_t index, Tensor* out) {
  *out = Tensor{};
  size_t count = 0;
  TRY(api->KernelContext_GetInputCount(context, &count));
  if (index >= count) return nullptr;
  const OrtValue* value = nullptr;
  TRY(api->KernelContext_GetInput(context, index, &value));
  return value ? read(value, out) : nullptr;
}

OrtStatus* optional_constant(const OrtKernelInfo* info, size_t index, const char* name, Tensor* out) {
  *out = Tensor{};
  size_t count = 0, size = 0;
  TRY(api->KernelInfo_GetInputCount(info, &count));
  if (index >= count) return nullptr;
  TRY(api->KernelInfo_GetInputName(info, index, nullptr, &size));
  if (size <= 1) return nullptr;  // "": an optional input that is left out
  int is_constant = 0;
  const OrtValue* value = nullptr;
  TRY(api->KernelInfoGetConstantInput_tensor(info, index, &is_constant, &value));
  if (!is_constant || !value) return fail("%s must be an initializer of the graph", name);
  return read(value, out);
}

OrtStatus* constant(const OrtKernelInfo* info, size_t index, const char* name, Tensor* out) {
  TRY(optional_constant(info, index, name, out));
  return out->present() ? nullptr : fail("%s is missing", name);
}

OrtStatus* output(OrtKernelContext* context, size_t index, const int64_t* dims, size_t rank, void** data) {
  OrtValue* value = nullptr;
  TRY(api->KernelContext_GetOutput(context, index, dims, rank, &value));
  return api->GetTensorMutableData(value, data);
}

OrtStatus* attribute(const OrtKernelInfo* info, const char* name, int64_t* out) {
  return absent(api->KernelInfoGetAttribute_int64(info, name, out)) ? fail("attribute %s (an integer) is missing", name) : nullptr;
}

OrtStatus* attribute(const OrtKernelInfo* info, const char* name, int64_t* out, int64_t otherwise) {
  if (absent(api->KernelInfoGetAttribute_int64(info, name, out))) *out = otherwise;
  return nullptr;
}

OrtStatus* attribute(const OrtKernelInfo* info, const char* name, float* out, float otherwise) {
  if (absent(api->KernelInfoGetAttribute_float(info, name, out))) *out = otherwise;
  return nullptr;
}

OrtStatus* attribute(const OrtKernelInfo* info, const char* name, char* text, size_t size) {
  text[0] = 0;
  size_t length = 0;
  if (absent(api->KernelInfoGetAttribute_string(info, name, nullptr, &length))) return nullptr;
  if (length > size) return fail("attribute %s is %zu bytes long, at most %zu are allowed", name, length, size);
  return api->KernelInfoGetAttribute_string(info, name, text, &length);
}

OrtStatus* check_sizes(int64_t n, int64_t k) {
  constexpr int64_t most = int64_t{1} << 30;
  if (n < 1 || k < 1 || n > most || k > most || n * k > most * 64)
    return fail("N = %lld, K = %lld: both must be 1 to 2^30, and N * K at most 2^36", static_cast<long long>(n), static_cast<long long>(k));
  return nullptr;
}

namespace {
void write_shape(char* text, size_t size, const int64_t* dims, size_t rank) {
  size_t at = static_cast<size_t>(snprintf(text, size, "["));
  for (size_t i = 0; i < rank && at < size; i++)
    at += static_cast<size_t>(snprintf(text + at, size - at, i ? ", %lld" : "%lld", static_cast<long long>(dims[i])));
  if (at < size) snprintf(text + at, size - at, "]");
}
}  // namespace

OrtStatus* check_shape(const char* name, const Tensor& tensor, std::initializer_list<int64_t> shape) {
  if (tensor.is(shape)) return nullptr;
  char got[128], wanted[128];
  write_shape(got, sizeof got, tensor.dims, tensor.rank);
  write_shape(wanted, sizeof wanted, shape.begin(), shape.size());
  return fail("%s has the shape %s, it must be %s", name, got, wanted);
}

namespace {
const Operator* self(const OrtCustomOp* op) { return static_cast<const Operator*>(op); }
OrtCustomOpInputOutputCharacteristic kind(bool optional) { return optional ? INPUT_OUTPUT_OPTIONAL : INPUT_OUTPUT_REQUIRED; }
}  // namespace

void describe(Operator* op) {
  op->version = ORT_API_VERSION;
  op->GetName = [](const OrtCustomOp* o) { return self(o)->name; };
  op->GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return nullptr; };
  op->GetInputType = [](const OrtCustomOp* o, size_t i) { return self(o)->ports[i].type; };
  op->GetInputTypeCount = [](const OrtCustomOp* o) { return self(o)->port_count; };
  op->GetOutputType = [](const OrtCustomOp* o, size_t i) { return self(o)->results[i].type; };
  op->GetOutputTypeCount = [](const OrtCustomOp* o) { return self(o)->result_count; };
  op->GetInputCharacteristic = [](const OrtCustomOp* o, size_t i) { return kind(self(o)->ports[i].optional); };
  op->GetOutputCharacteristic = [](const OrtCustomOp* o, size_t i) { return kind(self(o)->results[i].optional); };
  op->GetInputMemoryType = [](const OrtCustomOp*, size_t) { return OrtMemTypeDefault; };
  op->GetVariadicInputMinArity = [](const OrtCustomOp*) { return 0; };
  op->GetVariadicInputHomogeneity = [](const OrtCustomOp*) { return 0; };
  op->GetVariadicOutputMinArity = [](const OrtCustomOp*) { return 0; };
  op->GetVariadicOutputHomogeneity = [](const OrtCustomOp*) { return 0; };
  op->GetStartVersion = [](const OrtCustomOp*) { return 1; };
  op->GetEndVersion = [](const OrtCustomOp*) { return 1; };
}

}  // namespace specdec
