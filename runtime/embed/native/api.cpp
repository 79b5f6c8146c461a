// The public functions: check pointers, start Python, call its side.

#include <cstring>

#include "internal.h"
#include "start.h"

namespace {

uint64_t number(const void *handle) { return reinterpret_cast<uintptr_t>(handle); }

specdec_status bad_argument(const char *message) {
  return specdec_native_fail(SPECDEC_BAD_ARGUMENT, message);
}

// Checks what both ways to open have in common.
specdec_status ready_to_open(int32_t abi_version, specdec_decoder **decoder) {
  if (abi_version != SPECDEC_ABI_VERSION)
    return specdec_native_fail(SPECDEC_ABI,
                               "the caller was compiled with another ABI version of specdec.h; "
                               "compile it with the header beside this library");
  if (decoder == nullptr) return bad_argument("decoder is NULL; pass where the handle goes");
  *decoder = nullptr;
  return specdec_ready(nullptr);
}

specdec_status generate(const void *handle, int32_t is_session, const specdec_prompt *prompt,
                        const char *options, specdec_callback callback, void *user,
                        specdec_result *result) {
  if (result != nullptr) std::memset(result, 0, sizeof *result);
  if (prompt == nullptr) return bad_argument("prompt is NULL; pass a specdec_prompt");
  const specdec_status status = specdec_ready(nullptr);
  if (status != SPECDEC_OK) return status;
  return specdec_py_generate(number(handle), is_session, prompt, options, callback, user, result);
}

template <typename Call>
specdec_status when_ready(Call call) {
  const specdec_status status = specdec_ready(nullptr);
  return status != SPECDEC_OK ? status : call();
}

}  // namespace

extern "C" {

int32_t specdec_abi_version(void) { return SPECDEC_ABI_VERSION; }

specdec_status specdec_start(const char *python) { return specdec_ready(python); }

specdec_status specdec_open(int32_t abi_version, const char *path, const char *options,
                            specdec_decoder **decoder) {
  const specdec_status status = ready_to_open(abi_version, decoder);
  if (status != SPECDEC_OK) return status;
  if (path == nullptr) return bad_argument("path is NULL; pass a package directory");
  uint64_t opened = 0;
  const specdec_status done = specdec_py_open(path, options, &opened);
  *decoder = reinterpret_cast<specdec_decoder *>(static_cast<uintptr_t>(opened));
  return done;
}

specdec_status specdec_open_engines(int32_t abi_version, const specdec_engine *target,
                                    const specdec_engine *draft, const char *options,
                                    specdec_decoder **decoder) {
  const specdec_status status = ready_to_open(abi_version, decoder);
  if (status != SPECDEC_OK) return status;
  if (target == nullptr || target->forward == nullptr ||
      (draft != nullptr && draft->forward == nullptr))
    return bad_argument("an engine or its forward is NULL; pass a target with a forward");
  uint64_t opened = 0;
  const specdec_status done = specdec_py_open_engines(target, draft, options, &opened);
  *decoder = reinterpret_cast<specdec_decoder *>(static_cast<uintptr_t>(opened));
  return done;
}

specdec_status specdec_get_info(specdec_decoder *decoder, specdec_info *info) {
  if (info == nullptr) return bad_argument("info is NULL; pass a specdec_info");
  return when_ready([&] { return specdec_py_info(number(decoder), info); });
}

specdec_status specdec_generate(specdec_decoder *decoder, const specdec_prompt *prompt,
                                const char *options, specdec_callback callback, void *user,
                                specdec_result *result) {
  return generate(decoder, 0, prompt, options, callback, user, result);
}

specdec_status specdec_cancel(specdec_decoder *decoder) {
  return when_ready([&] { return specdec_py_cancel(number(decoder), 0); });
}

specdec_status specdec_close(specdec_decoder *decoder) {
  return when_ready([&] { return specdec_py_close(number(decoder), 0); });
}

specdec_status specdec_session_open(specdec_decoder *decoder, specdec_session **session) {
  if (session == nullptr) return bad_argument("session is NULL; pass where the handle goes");
  *session = nullptr;
  uint64_t opened = 0;
  const specdec_status status =
      when_ready([&] { return specdec_py_session_open(number(decoder), &opened); });
  *session = reinterpret_cast<specdec_session *>(static_cast<uintptr_t>(opened));
  return status;
}

specdec_status specdec_session_generate(specdec_session *session, const specdec_prompt *prompt,
                                        const char *options, specdec_callback callback, void *user,
                                        specdec_result *result) {
  return generate(session, 1, prompt, options, callback, user, result);
}

specdec_status specdec_session_cancel(specdec_session *session) {
  return when_ready([&] { return specdec_py_cancel(number(session), 1); });
}

specdec_status specdec_session_reset(specdec_session *session) {
  return when_ready([&] { return specdec_py_session_reset(number(session)); });
}

specdec_status specdec_session_close(specdec_session *session) {
  return when_ready([&] { return specdec_py_close(number(session), 1); });
}

}  // extern "C"
