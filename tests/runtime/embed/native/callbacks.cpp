// callbacks PACKAGE: what a host may do in a callback, and what it must not.
#include <specdec.hpp>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

specdec::Options some(int tokens) { return specdec::Options().max_new_tokens(tokens); }

void joins(specdec::Decoder &decoder) {
  std::string text;
  std::vector<specdec::Token> ids;
  size_t drafted = 0;
  auto last = specdec::FinishReason::running;
  const auto result = decoder.generate("a", some(20), [&](const specdec::Chunk &chunk) {
    text += chunk.text;
    ids.insert(ids.end(), chunk.token_ids.begin(), chunk.token_ids.end());
    for (const auto flag : chunk.from_draft) drafted += flag;
    last = chunk.finish_reason;
    return true;
  });
  std::printf("text %s ids %d drafted %d reason %d\n", text.c_str(), ids == result.token_ids,
              drafted == static_cast<size_t>(result.stats.accepted), static_cast<int>(last));
}

void cancels(specdec::Decoder &decoder) {
  int calls = 0;
  const auto result = decoder.generate("a", some(20), [&](const specdec::Chunk &) {
    ++calls;
    return false;
  });
  std::printf("cancelled: calls %d reason %d rounds %d\n", calls,
              static_cast<int>(result.finish_reason), static_cast<int>(result.stats.rounds));
}

void throws(specdec::Decoder &decoder) {
  const specdec::Callback bad = [](const specdec::Chunk &) -> bool {
    throw std::out_of_range("of the host");
  };
  try {
    decoder.generate("a", some(20), bad);
  } catch (const std::out_of_range &error) {
    std::printf("rethrown: %s\n", error.what());
  }
  specdec::Status status;
  decoder.generate("a", some(20), bad, status);
  std::printf("as a status: %d %s\n", status.code, status.message.c_str());
  const specdec::Prompt prompt("a");
  const auto code = specdec_generate(
      decoder.get(), prompt.get(), nullptr,
      [](const specdec_chunk *, void *) -> int32_t { throw 7; }, nullptr, nullptr);
  std::printf("through C: %d %s\n", code, specdec_last_error());
}

void reenters(specdec::Decoder &decoder) {
  auto session = decoder.session();
  specdec::Status nested, other;
  specdec_status closing = 0, freeing = 0;
  session.generate("a", some(20), [&](const specdec::Chunk &) {
    decoder.generate("b", some(2), nullptr, nested);
    decoder.session().generate("b", some(2), nullptr, other);
    closing = specdec_close(decoder.get());
    freeing = specdec_session_close(session.get());
    return false;
  });
  std::printf("reentered: %d %d %d %d\n", nested.code, other.code, closing, freeing);
  specdec::Session taken = std::move(session);
  std::printf("moved: %d %d\n", static_cast<bool>(session), static_cast<bool>(taken));
  std::printf("next turn: %s\n", taken.generate("xy", some(1)).text.c_str());
  taken.forget();
  std::printf("forgotten: %s\n", taken.generate("k", some(1)).text.c_str());
}

}  // namespace

int main(int argc, char **argv) {
  if (argc < 2) return 2;
  specdec::Decoder decoder(argv[1]);
  joins(decoder);
  cancels(decoder);
  throws(decoder);
  reenters(decoder);
  const auto after = decoder.generate("abc", some(3));
  std::printf("after: %s\n", after.text.c_str());
  return 0;
}
