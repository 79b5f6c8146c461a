/* What the C++ and the Python side of libspecdec say to each other; not installed.

   cffi reads the two marked parts: "python" is implemented in Python (specdec.runtime.embed
   .c_api), "native" in callbacks.cpp. */
#ifndef SPECDEC_INTERNAL_H
#define SPECDEC_INTERNAL_H

#include "specdec.h"

#ifdef __cplusplus
extern "C" {
#endif

/* [python] */
specdec_status specdec_py_start(void);
specdec_status specdec_py_open(const char *path, const char *options, uint64_t *decoder);
specdec_status specdec_py_open_engines(const specdec_engine *target, const specdec_engine *draft,
                                       const char *options, uint64_t *decoder);
specdec_status specdec_py_info(uint64_t decoder, specdec_info *info);
specdec_status specdec_py_generate(uint64_t handle, int32_t is_session,
                                   const specdec_prompt *prompt, const char *options,
                                   specdec_callback callback, void *user, specdec_result *result);
specdec_status specdec_py_session_open(uint64_t decoder, uint64_t *session);
specdec_status specdec_py_session_reset(uint64_t session);
specdec_status specdec_py_cancel(uint64_t handle, int32_t is_session);
specdec_status specdec_py_close(uint64_t handle, int32_t is_session);
/* [end of python] */

/* [native] */
enum {
  SPECDEC_INTERNAL_VERSION = 1, /* counts the changes of this file */
  SPECDEC_ATTACHED = -1         /* specdec_py_start: done; 0 comes from cffi alone */
};
const char *specdec_last_error(void);
specdec_status specdec_native_fail(specdec_status code, const char *message);
void *specdec_native_copy(const void *bytes, size_t size);
int32_t specdec_native_chunk(specdec_callback callback, const specdec_chunk *chunk, void *user,
                             int32_t *threw);
int32_t specdec_native_forward(const specdec_engine *engine, int64_t length,
                               const int64_t *token_ids, size_t num_rows, size_t num_logits,
                               const float **logits, int32_t *threw);
int32_t specdec_native_truncate(const specdec_engine *engine, int64_t length, int32_t *threw);
void specdec_native_close(const specdec_engine *engine, int32_t *threw);
/* [end of native] */

#ifdef __cplusplus
}
#endif
#endif
