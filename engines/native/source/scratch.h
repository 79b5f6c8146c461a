// Memory of a thread that grows to the largest size asked for and is freed with the thread.
#pragma once
#include <cstddef>
#include <cstdlib>

namespace specdec {

class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { std::free(memory_); }

  // At least count values, aligned to 64 bytes, contents undefined; null when there is no memory.
  template <class T>
  T* take(size_t count) {
    size_t bytes = (count * sizeof(T) + 63) / 64 * 64;
    if (bytes > size_) {
      std::free(memory_);
      memory_ = std::aligned_alloc(64, bytes);
      size_ = memory_ ? bytes : 0;
    }
    return static_cast<T*>(memory_);
  }

 private:
  void* memory_ = nullptr;
  size_t size_ = 0;
};

}  // namespace specdec
