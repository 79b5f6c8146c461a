// threads PACKAGE: cancellation from another thread, closing under a running generation, and
// 4 threads of 25 requests with the answers of one.
#include <specdec.hpp>

#include <atomic>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int num_threads = 4, num_requests = 25;

std::string answer(specdec::Decoder &decoder, int request) {
  auto options = specdec::Options().max_new_tokens(4).num_draft_tokens(2).ignore_eos();
  if (request % 2 != 0) options.temperature(0.8).seed(static_cast<std::uint64_t>(request));
  return decoder.generate("Number " + std::to_string(request) + " is", options).json;
}

// The part of the document before its timings.
std::string lasting(const std::string &json) { return json.substr(0, json.find("\"stats\"")); }

void cancel_elsewhere(specdec::Decoder &decoder) {
  std::atomic<int> chunks{0}, at_cancel{0};
  std::thread other([&] {
    while (chunks < 3) std::this_thread::yield();
    decoder.cancel();
    at_cancel = chunks.load();
  });
  const auto options = specdec::Options().max_new_tokens(400).ignore_eos();
  const auto result = decoder.generate("Once", options, [&](const specdec::Chunk &) {
    ++chunks;
    return true;
  });
  other.join();
  // The round under way, and the chunk that says "cancelled".
  std::printf("cancelled: reason %d late chunks %d\n", static_cast<int>(result.finish_reason),
              chunks - at_cancel <= 2 ? 0 : chunks - at_cancel);
}

void close_elsewhere(const char *package) {
  specdec::Decoder decoder(package);
  specdec_decoder *handle = decoder.get();
  std::atomic<bool> running{false};
  specdec_status closed = -1;
  std::thread other([&] {
    while (!running) std::this_thread::yield();
    closed = specdec_close(handle);
  });
  const auto result = decoder.generate("Once", specdec::Options().max_new_tokens(400).ignore_eos(),
                                       [&](const specdec::Chunk &) { return running = true; });
  other.join();
  specdec::Status status;
  decoder.generate("Once", {}, nullptr, status);
  std::printf("closed: %d reason %d then %d\n", closed, static_cast<int>(result.finish_reason),
              status.code);
}

void many(specdec::Decoder &decoder, const char *package) {
  std::vector<std::string> expected;
  for (int i = 0; i < num_requests; ++i) expected.push_back(lasting(answer(decoder, i)));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < num_threads; ++t)
    threads.emplace_back([&] {
      specdec::Decoder own(package, specdec::Options().set("verify_checksums", "false"));
      for (int i = 0; i < num_requests; ++i) wrong += lasting(answer(own, i)) != expected[i];
    });
  for (auto &thread : threads) thread.join();
  std::printf("requests %d wrong %d\n", num_threads * num_requests, wrong.load());
}

}  // namespace

int main(int argc, char **argv) {
  if (argc < 2) return 2;
  specdec::Decoder decoder(argv[1]);
  cancel_elsewhere(decoder);
  close_elsewhere(argv[1]);
  many(decoder, argv[1]);
  return 0;
}
