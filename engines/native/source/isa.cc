// The choice of the instruction set.
#include "isa.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace specdec {

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::kAvx512: return "avx512";
    case Isa::kAvx2Vnni: return "avx2-vnni";
    case Isa::kAvx2: return "avx2";
    case Isa::kNeon: return "neon";
    case Isa::kNone: break;
  }
  return "none";
}

#if defined(__x86_64__)
namespace {
// Two bits that not every compiler's own test of the processor names.
bool f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1);
}
bool avx_vnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}
}  // namespace

// The compiler's tests look at XCR0 too: a system that does not save the registers has not the set.
bool has(Isa isa) {
  bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && f16c();
  switch (isa) {
    case Isa::kAvx2: return avx2;
    case Isa::kAvx2Vnni: return avx2 && avx_vnni();
    case Isa::kAvx512:
      return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vnni");
    default: return false;
  }
}

namespace {
const Isa kAll[] = {Isa::kAvx512, Isa::kAvx2Vnni, Isa::kAvx2};
const char* const kNames = "avx512, avx2-vnni, avx2";
const char* const kNeed = "AVX2 with F16C and FMA";
const Kernels* table(Isa isa) {
  return isa == Isa::kAvx512 ? &kernels_avx512 : isa == Isa::kAvx2Vnni ? &kernels_avx2vnni : &kernels_avx2;
}
}  // namespace
#elif defined(__aarch64__)
bool has(Isa isa) {
  constexpr unsigned long kDotProduct = 1ul << 20;  // HWCAP_ASIMDDP
  return isa == Isa::kNeon && (getauxval(AT_HWCAP) & kDotProduct);
}

namespace {
const Isa kAll[] = {Isa::kNeon};
const char* const kNames = "neon";
const char* const kNeed = "NEON with dot products (ARMv8.2)";
const Kernels* table(Isa) { return &kernels_neon; }
}  // namespace
#endif

namespace {
Choice choose() {
  Choice choice{Isa::kNone, nullptr, ""};
  const char* wanted = getenv("SPECDEC_NATIVE");
  if (!wanted) wanted = "";
  if (!strcmp(wanted, "off")) {
    snprintf(choice.reason, sizeof choice.reason, "switched off by SPECDEC_NATIVE=off");
    return choice;
  }
  bool known = !*wanted, any = false;
  for (Isa isa : kAll) {
    bool named = !strcmp(wanted, isa_name(isa));
    known = known || named;
    any = any || has(isa);
    if ((*wanted && !named) || !has(isa)) continue;
    choice.isa = isa;
    choice.kernels = table(isa);
    return choice;
  }
  if (!known)
    snprintf(choice.reason, sizeof choice.reason, "SPECDEC_NATIVE=%.40s is not one of off, %s", wanted, kNames);
  else if (any)
    snprintf(choice.reason, sizeof choice.reason, "SPECDEC_NATIVE=%s: this processor has no %s", wanted, wanted);
  else
    snprintf(choice.reason, sizeof choice.reason, "this processor has no %s", kNeed);
  return choice;
}
}  // namespace

const Choice& chosen() {
  static const Choice choice = choose();
  return choice;
}

}  // namespace specdec
