// specdec.hpp: C++17 over specdec.h. Header only; link specdec::specdec.
//
//   specdec::Decoder decoder("package");
//   auto result = decoder.generate("Once upon a time", specdec::Options().max_new_tokens(64));
//
// Handles are move-only and close themselves. A failure throws specdec::Error; the overloads
// that take a Status throw nothing. An exception thrown in a stream callback ends the
// generation and comes out of generate().
// SPDX-License-Identifier: Apache-2.0
#ifndef SPECDEC_HPP
#define SPECDEC_HPP

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "specdec_types.hpp"

namespace specdec {

namespace detail {

inline Status status(specdec_status code) {
  return code == SPECDEC_OK ? Status{} : Status{code, specdec_last_error()};
}

inline void check(specdec_status code) {
  if (code != SPECDEC_OK) throw Error(status(code));
}

struct Stream {
  const Callback *callback;
  std::exception_ptr thrown;
};

extern "C" inline std::int32_t specdec_hpp_chunk(const specdec_chunk *chunk, void *user) {
  auto *stream = static_cast<Stream *>(user);
  try {
    const Chunk view{std::string_view(chunk->text, chunk->text_bytes),
                     View<Token>(chunk->token_ids, chunk->num_tokens),
                     View<std::uint8_t>(chunk->from_draft, chunk->num_tokens),
                     static_cast<FinishReason>(chunk->finish_reason)};
    return (*stream->callback)(view) ? 0 : 1;
  } catch (...) {
    stream->thrown = std::current_exception();
    return 1;
  }
}

// Frees the C result when the copy into a Result throws, too.
struct RawResult : specdec_result {
  RawResult() : specdec_result{} {}
  ~RawResult() { specdec_result_free(this); }
  RawResult(const RawResult &) = delete;
  RawResult &operator=(const RawResult &) = delete;

  Result take() const {
    return Result{std::string(text, text_bytes),
                  std::vector<Token>(token_ids, token_ids + num_tokens),
                  static_cast<FinishReason>(finish_reason), stats, std::string(json)};
  }
};

// The two kinds of handle, which differ in the C functions alone.
template <typename Handle, auto Generate, auto Cancel, auto Close>
class Generator {
 public:
  Generator() = default;
  ~Generator() { reset(); }
  Generator(Generator &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Generator &operator=(Generator &&other) noexcept {
    if (this != &other) {
      reset();
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  Generator(const Generator &) = delete;
  Generator &operator=(const Generator &) = delete;

  Result generate(const Prompt &prompt, const Options &options = Options(),
                  const Callback &callback = nullptr) {
    RawResult raw;
    Stream stream{&callback, nullptr};
    const specdec_status code = run(prompt, options, callback, stream, raw);
    if (stream.thrown) std::rethrow_exception(stream.thrown);
    check(code);
    return raw.take();
  }

  // The same without exceptions; an exception of the callback becomes SPECDEC_CALLBACK.
  Result generate(const Prompt &prompt, const Options &options, const Callback &callback,
                  Status &status) noexcept {
    try {
      status = Status{};
      return generate(prompt, options, callback);
    } catch (const Error &error) {
      status = Status{error.code(), error.what()};
    } catch (const std::exception &error) {
      status = Status{SPECDEC_CALLBACK, error.what()};
    } catch (...) {
      status = Status{SPECDEC_CALLBACK, "an exception of unknown type"};
    }
    return Result{};
  }

  // Ends the running generation before its next round; from any thread.
  void cancel() { check(Cancel(handle_)); }

  // Closes now and reports; the destructor does the same in silence.
  void close() { check(Close(std::exchange(handle_, nullptr))); }

  Handle *get() const noexcept { return handle_; }
  explicit operator bool() const noexcept { return handle_ != nullptr; }

 protected:
  explicit Generator(Handle *handle) noexcept : handle_(handle) {}

 private:
  void reset() noexcept {
    if (handle_ != nullptr) Close(std::exchange(handle_, nullptr));
  }
  specdec_status run(const Prompt &prompt, const Options &options, const Callback &callback,
                     Stream &stream, RawResult &raw) {
    return Generate(handle_, prompt.get(), options.json().c_str(),
                    callback ? &specdec_hpp_chunk : nullptr, &stream, &raw);
  }

  Handle *handle_ = nullptr;
};

}  // namespace detail

// Several turns on a decoder, whose KV cache they keep. The decoder must outlive it.
class Session : public detail::Generator<specdec_session, &specdec_session_generate,
                                         &specdec_session_cancel, &specdec_session_close> {
 public:
  Session() = default;
  void forget() { detail::check(specdec_session_reset(get())); }

 private:
  friend class Decoder;
  explicit Session(specdec_session *handle) noexcept : Generator(handle) {}
};

class Decoder : public detail::Generator<specdec_decoder, &specdec_generate, &specdec_cancel,
                                         &specdec_close> {
 public:
  Decoder() = default;

  // Options: "device", "draft_device", "verify_checksums", "num_threads", "drafter", and those of
  // OrtOptions: "cuda_graphs", "gpu_memory_limit", "allow_cpu_fallback", "reduce_logits",
  // "huge_pages", "load_cache", "engine".
  explicit Decoder(const std::string &package, const Options &options = Options())
      : Generator(open_package(package, options)) {}

  // The same without exceptions: an empty decoder, and the reason in `status`.
  static Decoder open(const std::string &package, const Options &options,
                      Status &status) noexcept {
    Decoder decoder;
    try {
      decoder = Decoder(package, options);
      status = Status{};
    } catch (const Error &error) {
      status = Status{error.code(), error.what()};
    } catch (const std::exception &error) {
      status = Status{SPECDEC_INTERNAL, error.what()};
    }
    return decoder;
  }

  // A decoder over the host's own engines; `draft` may be nullptr.
  static Decoder over(const specdec_engine &target, const specdec_engine *draft = nullptr,
                      const Options &options = Options()) {
    specdec_decoder *handle = nullptr;
    detail::check(specdec_open_engines(SPECDEC_ABI_VERSION, &target, draft,
                                       options.json().c_str(), &handle));
    return Decoder(handle);
  }

  Session session() {
    specdec_session *handle = nullptr;
    detail::check(specdec_session_open(get(), &handle));
    return Session(handle);
  }

  specdec_info info() const {
    specdec_info found{};
    detail::check(specdec_get_info(get(), &found));
    return found;
  }

 private:
  explicit Decoder(specdec_decoder *handle) noexcept : Generator(handle) {}

  static specdec_decoder *open_package(const std::string &package, const Options &options) {
    specdec_decoder *handle = nullptr;
    detail::check(specdec_open(SPECDEC_ABI_VERSION, package.c_str(), options.json().c_str(),
                               &handle));
    return handle;
  }
};

}  // namespace specdec
#endif  // SPECDEC_HPP
