// The instruction set the library runs with: chosen once a process, from the processor and SPECDEC_NATIVE.
#pragma once

namespace specdec {

struct Kernels;

enum class Isa { kNone, kAvx2, kAvx2Vnni, kAvx512, kNeon };

struct Choice {
  Isa isa;
  const Kernels* kernels;  // null where the library cannot or must not run
  char reason[256];        // why, one line
};

// Reads SPECDEC_NATIVE ("", off, avx512, avx2-vnni, avx2, neon) the first time; thread safe.
const Choice& chosen();
const char* isa_name(Isa isa);

// What the processor and the operating system allow; kNone for none.
bool has(Isa isa);

}  // namespace specdec
