// The few functions of the C++ runtime that the library uses, so that it needs none: libstdc++,
// even linked statically, asks for the newest glibc it was built on. There are no exceptions here.
#include <pthread.h>

#include <cstdlib>
#include <new>

#define HIDDEN __attribute__((visibility("hidden")))

const std::nothrow_t std::nothrow{};
void* operator new(size_t size, const std::nothrow_t&) noexcept { return malloc(size); }
void operator delete(void* p) noexcept { free(p); }
void operator delete(void* p, size_t) noexcept { free(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { free(p); }

namespace {
// Recursive: the initialization of one may need another.
pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
}

// Initialization of a function's static variables: the guard's first byte says that it is done.
extern "C" {
HIDDEN int __cxa_guard_acquire(char* guard) {
  if (__atomic_load_n(guard, __ATOMIC_ACQUIRE)) return 0;
  pthread_mutex_lock(&lock);
  if (!__atomic_load_n(guard, __ATOMIC_ACQUIRE)) return 1;
  pthread_mutex_unlock(&lock);
  return 0;
}
HIDDEN void __cxa_guard_release(char* guard) {
  __atomic_store_n(guard, 1, __ATOMIC_RELEASE);
  pthread_mutex_unlock(&lock);
}
HIDDEN void __cxa_guard_abort(char*) { pthread_mutex_unlock(&lock); }

// Destructors of a thread's variables: glibc has had the real one since 2.18.
int __cxa_thread_atexit_impl(void (*)(void*), void*, void*);
HIDDEN int __cxa_thread_atexit(void (*destroy)(void*), void* object, void* library) {
  return __cxa_thread_atexit_impl(destroy, object, library);
}
}
