// The library's entries: ONNX Runtime's RegisterCustomOps and the questions the package asks first.
#include "isa.h"
#include "operators.h"

#include <pthread.h>

namespace {
using namespace specdec;

constexpr int kVersion = 1;  // of the operators, layouts and entries; library.py names the one it wants

// Every operator; add one by its line here and in operators.h.
const OrtCustomOp* (*const kOperators[])() = {
    gather_fp16,
    gather_blocks,
    matmul_fp16,
    matmul_blocks,
    attention_float,
    attention_fp16,
};

// The domain of this process, never released: sessions keep pointers into it.
OrtStatus* make_domain(OrtCustomOpDomain** out) {
  OrtCustomOpDomain* domain = nullptr;
  TRY(api->CreateCustomOpDomain("specdec", &domain));
  for (const auto& make : kOperators)
    if (OrtStatus* status = api->CustomOpDomain_Add(domain, make())) {
      api->ReleaseCustomOpDomain(domain);
      return status;
    }
  *out = domain;
  return nullptr;
}
}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int specdec_native_version() { return kVersion; }

// The instruction set in use ("avx512", "avx2-vnni", "avx2", "neon"); "" where there is none.
EXPORT const char* specdec_native_isa() { return chosen().kernels ? isa_name(chosen().isa) : ""; }

// Why there is none, one line; "" where there is one.
EXPORT const char* specdec_native_reason() { return chosen().reason; }

EXPORT OrtStatus* ORT_API_CALL RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) {
  static const OrtApi* const found = base->GetApi(ORT_API_VERSION);
  if (!found) return base->GetApi(1)->CreateStatus(ORT_FAIL, "this ONNX Runtime is older than the native operators need (1.21)");
  api = found;  // the same value every time
  if (!chosen().kernels) return fail("%s", chosen().reason);
  static OrtCustomOpDomain* domain = nullptr;
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&lock);
  OrtStatus* status = domain ? nullptr : make_domain(&domain);
  pthread_mutex_unlock(&lock);
  if (status) return status;
  return api->AddCustomOpDomain(options, domain);
}
