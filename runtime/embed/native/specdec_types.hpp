// specdec_types.hpp: what specdec.hpp passes in and hands back.
// SPDX-License-Identifier: Apache-2.0
#ifndef SPECDEC_TYPES_HPP
#define SPECDEC_TYPES_HPP

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <locale>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#if __cplusplus >= 202002L
#include <span>
#endif

#include "specdec.h"

namespace specdec {

using Token = std::int32_t;

// What a call ended with: a code of specdec.h and, unless 0, a one-line message.
struct Status {
  specdec_status code = SPECDEC_OK;
  std::string message;

  explicit operator bool() const noexcept { return code != SPECDEC_OK; }
};

class Error : public std::runtime_error {
 public:
  explicit Error(const Status &status) : std::runtime_error(status.message), code_(status.code) {}
  specdec_status code() const noexcept { return code_; }

 private:
  specdec_status code_;
};

enum class FinishReason : std::int32_t {
  running = SPECDEC_RUNNING,
  stop = SPECDEC_STOP,
  length = SPECDEC_LENGTH,
  context = SPECDEC_CONTEXT,
  cancelled = SPECDEC_CANCELLED
};

#if __cplusplus >= 202002L
template <typename T>
using View = std::span<const T>;
#else
// A pointer and a size, until C++20 brings std::span.
template <typename T>
class View {
 public:
  View(const T *data, std::size_t size) : data_(data), size_(size) {}
  View(const std::vector<T> &items) : data_(items.data()), size_(items.size()) {}
  const T *data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  const T *begin() const noexcept { return data_; }
  const T *end() const noexcept { return data_ + size_; }
  const T &operator[](std::size_t index) const { return data_[index]; }

 private:
  const T *data_;
  std::size_t size_;
};
#endif

// One step of a stream; the views hold during the callback.
struct Chunk {
  std::string_view text;
  View<Token> token_ids;
  View<std::uint8_t> from_draft;
  FinishReason finish_reason;
};

// Returns true to go on, false to cancel.
using Callback = std::function<bool(const Chunk &)>;

struct Result {
  std::string text;
  std::vector<Token> token_ids;
  FinishReason finish_reason = FinishReason::running;
  specdec_stats stats{};
  std::string json;  // the document of `specdec-run --json`
};

// A string as a JSON literal, quotes included.
inline std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
      out += escape;
    } else {
      out += c;
    }
  }
  return out += '"';
}

// Sampling options, those of SamplingParams; what is not set keeps its default. set() takes any
// option as JSON, so an option newer than this header needs no new header.
class Options {
 public:
  Options &set(std::string_view name, std::string_view json) {
    if (!body_.empty()) body_ += ',';
    body_ += json_string(name) + ':';
    body_ += json;
    return *this;
  }
  Options &max_new_tokens(std::int64_t n) { return set("max_new_tokens", number(n)); }
  Options &min_new_tokens(std::int64_t n) { return set("min_new_tokens", number(n)); }
  Options &temperature(double value) { return set("temperature", number(value)); }
  Options &top_k(std::int64_t n) { return set("top_k", number(n)); }
  Options &top_p(double value) { return set("top_p", number(value)); }
  Options &min_p(double value) { return set("min_p", number(value)); }
  Options &repetition_penalty(double value) { return set("repetition_penalty", number(value)); }
  Options &presence_penalty(double value) { return set("presence_penalty", number(value)); }
  Options &frequency_penalty(double value) { return set("frequency_penalty", number(value)); }
  Options &no_repeat_ngram_size(std::int64_t n) { return set("no_repeat_ngram_size", number(n)); }
  Options &logit_bias(const std::vector<std::pair<Token, double>> &biases) {
    std::string json;
    for (const auto &bias : biases)
      json += (json.empty() ? "\"" : ",\"") + number(std::int64_t{bias.first}) +
              "\":" + number(bias.second);
    return set("logit_bias", '{' + json + '}');
  }
  Options &stop(const std::vector<std::string> &texts) {
    std::string json;
    for (const auto &text : texts) json += (json.empty() ? "" : ",") + json_string(text);
    return set("stop", '[' + json + ']');
  }
  Options &stop_token_ids(const std::vector<Token> &ids) {
    std::string json;
    for (const Token id : ids) json += (json.empty() ? "" : ",") + number(std::int64_t{id});
    return set("stop_token_ids", '[' + json + ']');
  }
  Options &ignore_eos(bool on = true) { return set("ignore_eos", on ? "true" : "false"); }
  Options &seed(std::uint64_t seed) { return set("seed", number(seed)); }
  Options &logprobs(std::int64_t alternatives) { return set("logprobs", number(alternatives)); }
  Options &num_draft_tokens(std::int64_t n) { return set("num_draft_tokens", number(n)); }
  Options &draft_temperature(double value) { return set("draft_temperature", number(value)); }
  Options &verify(std::string_view rule) { return set("verify", json_string(rule)); }
  Options &skip_special_tokens(bool on) {
    return set("skip_special_tokens", on ? "true" : "false");
  }
  Options &truncate_prompt_left() { return set("truncate_prompt", "\"left\""); }
  Options &tools(std::string_view json) { return set("tools", json); }
  Options &chat_template_kwargs(std::string_view json) { return set("chat_template_kwargs", json); }
  Options &model_defaults(bool on = true) { return set("model_defaults", on ? "true" : "false"); }
  Options &reuse_prefix(bool on = true) { return set("reuse_prefix", on ? "true" : "false"); }

  std::string json() const { return '{' + body_ + '}'; }

 private:
  static std::string number(std::int64_t value) { return std::to_string(value); }
  static std::string number(std::uint64_t value) { return std::to_string(value); }
  static std::string number(double value) {  // in no locale but C's, and to the last digit
    if (value == -std::numeric_limits<double>::infinity()) return "-Infinity";
    if (value == std::numeric_limits<double>::infinity()) return "Infinity";
    std::ostringstream out;
    out.imbue(std::locale::classic());
    out.precision(std::numeric_limits<double>::max_digits10);
    out << value;
    return out.str() == "nan" || out.str() == "-nan" ? "NaN" : out.str();
  }

  std::string body_;
};

// Text, token ids, or chat messages; a view, like its parts.
class Prompt {
 public:
  Prompt(std::string_view text) : prompt_{SPECDEC_TEXT, text.data(), text.size()} {}
  Prompt(const char *text) : Prompt(std::string_view(text)) {}
  Prompt(const std::string &text) : Prompt(std::string_view(text)) {}
  Prompt(View<Token> ids) : prompt_{SPECDEC_TOKENS, ids.data(), ids.size()} {}
  Prompt(const std::vector<Token> &ids) : prompt_{SPECDEC_TOKENS, ids.data(), ids.size()} {}

  // A JSON array such as [{"role": "user", "content": "Hello"}].
  static Prompt messages(std::string_view json) {
    Prompt prompt(json);
    prompt.prompt_.kind = SPECDEC_MESSAGES;
    return prompt;
  }
  const specdec_prompt *get() const noexcept { return &prompt_; }

 private:
  specdec_prompt prompt_;
};

}  // namespace specdec
#endif  // SPECDEC_TYPES_HPP
