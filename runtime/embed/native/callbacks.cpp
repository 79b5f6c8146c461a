// Calls from the Python side into the host, and memory handed to it.
//
// The Python side releases the interpreter's lock around every function here. A C++ exception
// must not travel through the interpreter's frames, so it ends at these calls.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "internal.h"

namespace {

thread_local specdec_status last_code = SPECDEC_OK;
thread_local char last_message[1024] = "";

// Runs a call of the host; an exception becomes *threw = 1, its text the thread's message.
template <typename Call>
int32_t guarded(Call call, int32_t *threw) {
  *threw = 0;
  try {
    return call();
  } catch (const std::exception &error) {
    std::snprintf(last_message, sizeof last_message, "%s", error.what());
  } catch (...) {
    std::snprintf(last_message, sizeof last_message, "an exception of unknown type");
  }
  *threw = 1;
  return -1;
}

}  // namespace

extern "C" {

specdec_status specdec_native_fail(specdec_status code, const char *message) {
  last_code = code;
  size_t size = std::strlen(message);
  if (size >= sizeof last_message) {
    size = sizeof last_message - 1;
    while (size > 0 && (message[size] & 0xC0) == 0x80) --size;  // not inside a UTF-8 character
  }
  std::memmove(last_message, message, size);
  last_message[size] = '\0';
  return code;
}

specdec_status specdec_last_error_code(void) { return last_code; }

const char *specdec_last_error(void) { return last_message; }

void *specdec_native_copy(const void *bytes, size_t size) {
  char *copy = static_cast<char *>(std::malloc(size + 1));
  if (copy == nullptr) return nullptr;
  if (size > 0) std::memcpy(copy, bytes, size);
  copy[size] = '\0';
  return copy;
}

void specdec_result_free(specdec_result *result) {
  if (result == nullptr) return;
  std::free(result->text);
  std::free(result->token_ids);
  std::free(result->json);
  std::memset(result, 0, sizeof *result);
}

int32_t specdec_native_chunk(specdec_callback callback, const specdec_chunk *chunk, void *user,
                             int32_t *threw) {
  return guarded([&] { return callback(chunk, user); }, threw);
}

int32_t specdec_native_forward(const specdec_engine *engine, int64_t length,
                               const int64_t *token_ids, size_t num_rows, size_t num_logits,
                               const float **logits, int32_t *threw) {
  return guarded(
      [&] {
        return engine->forward(engine->user, length, token_ids, num_rows, num_logits, logits);
      },
      threw);
}

int32_t specdec_native_truncate(const specdec_engine *engine, int64_t length, int32_t *threw) {
  if (engine->truncate == nullptr) {
    *threw = 0;
    return 0;
  }
  return guarded([&] { return engine->truncate(engine->user, length); }, threw);
}

void specdec_native_close(const specdec_engine *engine, int32_t *threw) {
  *threw = 0;
  if (engine->close == nullptr) return;
  guarded([&] { return engine->close(engine->user), 0; }, threw);
}

}  // extern "C"
