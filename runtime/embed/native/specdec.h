/* specdec.h: lossless speculative decoding from C, C++ and anything with a C FFI.

   Build the library once, on the machine that runs it:

       python -m specdec.runtime.embed build --out DIR

   Rules of the whole interface (docs/embedding.md has the reasons):
   - Every function but the small readers returns a status: 0, or a code of enum below. The
     message of a thread's last failure is specdec_last_error(). No exception comes out.
   - Text is UTF-8. Options are one JSON object, or NULL for the defaults.
   - Handles are numbers dressed as pointers: a closed, foreign or invented one is answered with
     a code. Any thread may use any handle.
   - A decoder runs one generation at a time; a second one gets SPECDEC_BUSY. Decoders run beside
     each other.
   SPDX-License-Identifier: Apache-2.0 */
#ifndef SPECDEC_H
#define SPECDEC_H

#include <stddef.h>
#include <stdint.h>

#define SPECDEC_ABI_VERSION 1

#if defined(__GNUC__)
#define SPECDEC_API __attribute__((visibility("default")))
#else
#define SPECDEC_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* [types] */

/* Status codes. 1 .. 36 are the `code` of the Python error classes (specdec.runtime.errors). */
enum {
  SPECDEC_OK = 0,
  SPECDEC_ERROR = 1,
  SPECDEC_MISSING_DEPENDENCY = 2,
  SPECDEC_OUTPUT = 3,             /* a file cannot be written; the old one is as it was */
  SPECDEC_PACKAGE = 10,           /* not a directory, malformed, unsafe */
  SPECDEC_PACKAGE_INTEGRITY = 11, /* missing file, wrong size, wrong checksum */
  SPECDEC_PACKAGE_VERSION = 12,
  SPECDEC_ENGINE = 20,
  SPECDEC_CONTEXT_OVERFLOW = 21,
  SPECDEC_NUMERICAL = 22, /* NaN or infinite logits */
  SPECDEC_DEVICE = 23,
  SPECDEC_INVALID_PARAMETER = 30,
  SPECDEC_UNSUPPORTED_OPTION = 31,
  SPECDEC_PROMPT = 32,
  SPECDEC_BUSY = 33,
  SPECDEC_NO_TOKEN_LEFT = 34,
  SPECDEC_CLOSED = 35,     /* the handle was closed before */
  SPECDEC_NOT_BEGUN = 36,  /* cancelled while the prompt was made from messages */
  SPECDEC_BAD_HANDLE = 50, /* NULL, of the other kind, or never given out */
  SPECDEC_BAD_ARGUMENT = 51,
  SPECDEC_ABI = 52,      /* header and library have different ABI versions */
  SPECDEC_CALLBACK = 53, /* a callback threw a C++ exception; it was caught */
  SPECDEC_FORKED = 54,   /* this process is a fork of the one that started the library */
  SPECDEC_NO_PYTHON = 55,
  SPECDEC_INTERNAL = 99
};
typedef int32_t specdec_status;

enum { SPECDEC_TEXT = 0, SPECDEC_TOKENS = 1, SPECDEC_MESSAGES = 2 };

/* Why a generation ended; SPECDEC_RUNNING in every chunk but the last. */
enum {
  SPECDEC_RUNNING = 0,
  SPECDEC_STOP = 1,      /* an end token or a stop string */
  SPECDEC_LENGTH = 2,    /* max_new_tokens */
  SPECDEC_CONTEXT = 3,   /* the context is full */
  SPECDEC_CANCELLED = 4
};

typedef struct specdec_decoder specdec_decoder; /* never defined: a number, see above */
typedef struct specdec_session specdec_session;

/* What to continue: UTF-8 text, int32 token ids, or chat messages as a JSON array. */
typedef struct specdec_prompt {
  int32_t kind;     /* SPECDEC_TEXT, SPECDEC_TOKENS, SPECDEC_MESSAGES */
  const void *data; /* const char * or const int32_t *, need not outlive the call */
  size_t size;      /* bytes of text, or number of tokens */
} specdec_prompt;

/* One step of a stream, valid during the callback. Chunks joined equal the result. */
typedef struct specdec_chunk {
  const int32_t *token_ids;
  const uint8_t *from_draft; /* 1 where the draft proposed the token, num_tokens of them */
  size_t num_tokens;
  const char *text; /* whole characters, a zero byte after them */
  size_t text_bytes;
  int32_t finish_reason;
} specdec_chunk;

/* Returns 0 to go on, anything else to cancel. Python's lock is not held meanwhile. */
typedef int32_t (*specdec_callback)(const specdec_chunk *chunk, void *user);

typedef struct specdec_stats {
  int64_t prompt_tokens, new_tokens, rounds, drafted, evaluated, accepted;
  double tokens_per_round, acceptance_rate;
  double prefill_seconds, draft_seconds, verify_seconds, host_seconds, total_seconds;
  double time_to_first_token; /* seconds */
  double tokens_per_second;   /* decoding, the prefill apart */
} specdec_stats;

/* A finished generation. Yours: give it to specdec_result_free. */
typedef struct specdec_result {
  char *text; /* a zero byte after it */
  size_t text_bytes;
  int32_t *token_ids; /* the end token included */
  size_t num_tokens;
  int32_t finish_reason;
  specdec_stats stats;
  char *json; /* the document `specdec-run --json` prints: also logprobs, all statistics */
} specdec_result;

typedef struct specdec_info {
  int64_t max_length;        /* context in tokens, prompt and output together */
  int32_t has_chat_template; /* 1 when a prompt may be SPECDEC_MESSAGES */
} specdec_info;

/* A model of the host's own, for specdec_open_engines. Calls come from the generating thread,
   one at a time; `user` is passed through. */
typedef struct specdec_engine {
  void *user;
  int64_t vocab_size;   /* ids 0 .. vocab_size - 1 */
  int64_t logits_width; /* columns of the logits, at least vocab_size */
  int64_t max_length;   /* tokens the cache holds */
  /* Append num_rows ids after `length` cached tokens. Point *logits at float32
     [num_logits][logits_width] for the last num_logits rows (it may be 0); the memory is read
     until the next call. Non-zero is a failure; the cache must then be as before. */
  int32_t (*forward)(void *user, int64_t length, const int64_t *token_ids, size_t num_rows,
                     size_t num_logits, const float **logits);
  /* Forget the tokens at `length` and later. Non-zero is a failure. NULL when forward's
     `length` is all the engine needs to know. */
  int32_t (*truncate)(void *user, int64_t length);
  /* The decoder is done with the engine. May be NULL. */
  void (*close)(void *user);
} specdec_engine;

/* [end of types] */

/* ---- the library ---- */

SPECDEC_API int32_t specdec_abi_version(void);

/* Start the embedded interpreter now instead of in the first call. `python` names the
   interpreter of the environment to use; NULL is $SPECDEC_PYTHON, else the one that built the
   library. Without effect, and 0, once started. */
SPECDEC_API specdec_status specdec_start(const char *python);

/* The last failure of this thread: code and one-line message, until its next failure. */
SPECDEC_API specdec_status specdec_last_error_code(void);
SPECDEC_API const char *specdec_last_error(void);

/* ---- decoders ---- */

/* Open a package. Pass SPECDEC_ABI_VERSION first. Options: "device", "draft_device",
   "verify_checksums", "num_threads", "drafter", "chat_template", as SpeculativeDecoder.load;
   "cuda_graphs",
   "gpu_memory_limit" (bytes), "allow_cpu_fallback", "reduce_logits", "huge_pages", "load_cache"
   (path), "engine" ("auto", "native", "onnxruntime"), as OrtOptions. */
SPECDEC_API specdec_status specdec_open(int32_t abi_version, const char *path,
                                        const char *options, specdec_decoder **decoder);

/* The same over engines of the host; `draft` may be NULL. The structs are copied. Options:
   "eos_token_ids", "drafter", "tokenizer" (path of a tokenizer.json, for text). */
SPECDEC_API specdec_status specdec_open_engines(int32_t abi_version,
                                                const specdec_engine *target,
                                                const specdec_engine *draft,
                                                const char *options, specdec_decoder **decoder);

SPECDEC_API specdec_status specdec_get_info(specdec_decoder *decoder, specdec_info *info);

/* Generate. Options are those of SamplingParams, and "tools" and "chat_template_kwargs" (an object
   of template variables; both for messages), "model_defaults" (start from the sampling options of
   the model's authors) and "reuse_prefix" (keep what the cache shares with the prompt). `callback` and `result` may be NULL. A
   cancelled generation is no error: its finish_reason says so. */
SPECDEC_API specdec_status specdec_generate(specdec_decoder *decoder,
                                            const specdec_prompt *prompt, const char *options,
                                            specdec_callback callback, void *user,
                                            specdec_result *result);

/* End the running generation, if any, before its next round. From any thread. */
SPECDEC_API specdec_status specdec_cancel(specdec_decoder *decoder);

/* Cancel, wait for the end, and free. From inside a callback of this decoder: SPECDEC_BUSY. */
SPECDEC_API specdec_status specdec_close(specdec_decoder *decoder);

/* ---- sessions: several turns that keep the KV cache ---- */

SPECDEC_API specdec_status specdec_session_open(specdec_decoder *decoder,
                                                specdec_session **session);
SPECDEC_API specdec_status specdec_session_generate(specdec_session *session,
                                                    const specdec_prompt *prompt,
                                                    const char *options,
                                                    specdec_callback callback, void *user,
                                                    specdec_result *result);
SPECDEC_API specdec_status specdec_session_cancel(specdec_session *session);
SPECDEC_API specdec_status specdec_session_reset(specdec_session *session);
SPECDEC_API specdec_status specdec_session_close(specdec_session *session);

/* Free what a result holds and zero it. NULL and a zeroed result are fine. */
SPECDEC_API void specdec_result_free(specdec_result *result);

#ifdef __cplusplus
}
#endif
#endif /* SPECDEC_H */
