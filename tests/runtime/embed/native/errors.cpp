// errors PACKAGE: prints a line "case: code message" per misuse.
#include <specdec.hpp>

#include <cstdio>
#include <string>

namespace {

void show(const char *name, specdec_status code) {
  std::printf("%s: %d %s\n", name, code, code == SPECDEC_OK ? "" : specdec_last_error());
  if (code != SPECDEC_OK && code != specdec_last_error_code()) std::printf("wrong last code\n");
}

specdec_status generate(specdec_decoder *decoder, specdec_prompt prompt, const char *options) {
  return specdec_generate(decoder, &prompt, options, nullptr, nullptr, nullptr);
}

specdec_prompt text(const std::string &bytes) { return {SPECDEC_TEXT, bytes.data(), bytes.size()}; }

void opening(const char *package) {
  specdec_decoder *decoder = nullptr;
  const auto open = [&](int abi, const char *path, const char *options) {
    return specdec_open(abi, path, options, &decoder);
  };
  show("abi", open(SPECDEC_ABI_VERSION + 1, package, nullptr));
  show("missing package", open(1, "/nowhere/at all", nullptr));
  show("null path", open(1, nullptr, nullptr));
  show("null out", specdec_open(1, package, nullptr, nullptr));
  show("bad load option", open(1, package, "{\"devise\": \"cpu\"}"));
  show("bad device", open(1, package, "{\"device\": \"tpu\"}"));
  show("too many threads", open(1, package, "{\"num_threads\": 2147483648}"));
  show("a flag that is none", open(1, package, "{\"verify_checksums\": 1}"));
  show("NUL in a path", open(1, package, "{\"load_cache\": \"a\\u0000b\"}"));
  show("NUL in a name", open(1, package, "{\"drafter\": \"mo\\u0000del\"}"));
  show("bad json", open(1, package, "{device: 1}"));
  show("null engine", specdec_open_engines(1, nullptr, nullptr, nullptr, &decoder));
  if (decoder != nullptr) std::printf("a handle came out of a failure\n");
}

void generating(specdec_decoder *decoder) {
  const std::string word = "abc", broken = "ab\xff", empty;
  const char *role = "[{\"role\": \"user\"";
  show("bad option", generate(decoder, text(word), "{\"max_new_tokns\": 3}"));
  show("bad value", generate(decoder, text(word), "{\"top_p\": 2}"));
  show("twice", generate(decoder, text(word), "{\"seed\": 1, \"seed\": 2}"));
  show("not an object", generate(decoder, text(word), "[]"));
  show("not utf-8", generate(decoder, text(broken), nullptr));
  show("empty prompt", generate(decoder, text(empty), nullptr));
  show("bad kind", generate(decoder, {7, "a", 1}, nullptr));
  show("null data", generate(decoder, {SPECDEC_TOKENS, nullptr, 3}, nullptr));
  show("bad messages", generate(decoder, {SPECDEC_MESSAGES, role, 5}, nullptr));
  const std::string half = "[{\"role\": \"user\", \"content\": \"\\ud800\"}]";
  show("half a pair", generate(decoder, {SPECDEC_MESSAGES, half.data(), half.size()}, nullptr));
  show("huge id", generate(decoder, text(word), "{\"stop_token_ids\": [1180591620717411303424]}"));
  show("tools", generate(decoder, text(word), "{\"tools\": 1}"));
  const int32_t ids[] = {1, -4};
  show("bad token", generate(decoder, {SPECDEC_TOKENS, ids, 2}, nullptr));
  show("null prompt", specdec_generate(decoder, nullptr, nullptr, nullptr, nullptr, nullptr));
  show("null info", specdec_get_info(decoder, nullptr));
  show("still works", generate(decoder, text(word), "{\"max_new_tokens\": 3}"));
}

void handles(specdec_decoder *decoder) {
  const std::string word = "abc";
  int on_the_stack = 0;
  specdec_session *session = nullptr, *other = nullptr;
  show("session", specdec_session_open(decoder, &session));
  show("other session", specdec_session_open(decoder, &other));
  show("null handle", generate(nullptr, text(word), nullptr));
  show("foreign handle", specdec_close(reinterpret_cast<specdec_decoder *>(&on_the_stack)));
  show("other kind", specdec_close(reinterpret_cast<specdec_decoder *>(session)));
  show("session close", specdec_session_close(session));
  show("session closed", specdec_session_reset(session));
  show("close", specdec_close(decoder));
  show("closed handle", generate(decoder, text(word), nullptr));
  show("double close", specdec_close(decoder));
  show("cancel closed", specdec_cancel(decoder));
  show("session of closed", specdec_session_cancel(other));
  specdec_result_free(nullptr);
}

}  // namespace

int main(int argc, char **argv) {
  if (argc < 2) return 2;
  opening(argv[1]);
  specdec_decoder *decoder = nullptr;
  show("open", specdec_open(SPECDEC_ABI_VERSION, argv[1], "", &decoder));
  generating(decoder);
  handles(decoder);
  return 0;
}
