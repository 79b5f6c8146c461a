// The C++ side of embedding.py: one measurement a run, as lines of "name value".
//
//   embedding speed PACKAGE TOKENS | latency PACKAGE | pool PACKAGE DECODERS | soak PACKAGE COUNT
#include <specdec.hpp>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
const std::string prompt = "Here is a short story about a lighthouse keeper.";

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double resident_megabytes() {
  std::ifstream statm("/proc/self/statm");
  long total = 0, resident = 0;
  statm >> total >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1e6;
}

specdec::Options steady(int tokens) {
  return specdec::Options().max_new_tokens(tokens).num_draft_tokens(4).ignore_eos();
}

// A generation per line of stdin, so that another process can take turns: tokens per second of
// the wall clock, callbacks included, and the time to the first token.
void speed(const char *package, int tokens) {
  const double bare = resident_megabytes();
  specdec_start(nullptr);
  const double started = resident_megabytes();
  specdec::Decoder decoder(package);
  decoder.generate(prompt, steady(16));
  std::printf("bare_mb %.1f started_mb %.1f loaded_mb %.1f\n", bare, started,
              resident_megabytes());
  std::fflush(stdout);
  for (std::string turn; std::getline(std::cin, turn);) {
    const auto start = Clock::now();
    double first = 0;
    const auto result = decoder.generate(prompt, steady(tokens), [&](const specdec::Chunk &) {
      if (first == 0) first = seconds_since(start);
      return true;
    });
    const double rest = seconds_since(start) - first;
    std::printf("first_ms %.3f tokens_per_second %.3f\n", 1e3 * first,
                static_cast<double>(result.token_ids.size() - 1) / rest);
    std::fflush(stdout);
  }
}

// How long another thread waits for the library while engines run.
void latency(const char *package) {
  specdec::Decoder decoder(package);
  decoder.generate(prompt, steady(16));
  std::atomic<bool> running{true};
  std::vector<double> waits;
  std::thread other([&] {
    while (running) {
      const auto start = Clock::now();
      decoder.info();
      waits.push_back(1e3 * seconds_since(start));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  const auto result = decoder.generate(prompt, steady(96));
  running = false;
  other.join();
  std::sort(waits.begin(), waits.end());
  std::printf("calls %zu\nmedian_ms %.3f\np95_ms %.3f\n", waits.size(), waits[waits.size() / 2],
              waits[waits.size() * 95 / 100]);
  std::printf("verify_pass_ms %.2f\n",
              1e3 * result.stats.verify_seconds / static_cast<double>(result.stats.rounds));
}

// Tokens per second of all requests together, for a pool of decoders.
void pool(const char *package, int count) {
  std::vector<specdec::Decoder> decoders;
  const int threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / count);
  const auto options = specdec::Options()
                           .set("num_threads", std::to_string(threads))
                           .set("verify_checksums", "false");
  for (int i = 0; i < count; ++i) decoders.emplace_back(package, options);
  std::atomic<int> left{8}, tokens{0};
  const auto start = Clock::now();
  std::vector<std::thread> workers;
  for (auto &decoder : decoders)
    workers.emplace_back([&] {
      while (left-- > 0)
        tokens += static_cast<int>(decoder.generate(prompt, steady(48)).token_ids.size());
    });
  for (auto &worker : workers) worker.join();
  std::printf("tokens_per_second %.2f\nresident_mb %.0f\n", tokens / seconds_since(start),
              resident_megabytes());
}

// Short requests, a third of them cancelled at a random chunk; memory after every tenth.
void soak(const char *package, int count) {
  specdec::Decoder decoder(package);
  std::mt19937 random(1);
  int cancelled = 0;
  const auto start = Clock::now();
  for (int i = 1; i <= count; ++i) {
    int chunks_left = random() % 3 == 0 ? static_cast<int>(random() % 3) : 1000;
    const auto text = "Request " + std::to_string(random() % 100000) + ":";
    auto options = specdec::Options().max_new_tokens(1 + random() % 8).ignore_eos();
    if (random() % 2 == 0) options.temperature(0.8).logprobs(2);
    const auto result = decoder.generate(
        text, options, [&](const specdec::Chunk &) { return chunks_left-- > 0; });
    cancelled += result.finish_reason == specdec::FinishReason::cancelled;
    if (i % std::max(1, count / 10) == 0)
      std::printf("requests %d resident_mb %.1f\n", i, resident_megabytes());
  }
  std::printf("cancelled %d seconds %.0f\n", cancelled, seconds_since(start));
}

}  // namespace

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  const std::string what = argv[1];
  const int number = argc > 3 ? std::atoi(argv[3]) : 0;
  try {
    if (what == "speed") speed(argv[2], number);
    if (what == "latency") latency(argv[2]);
    if (what == "pool") pool(argv[2], number);
    if (what == "soak") soak(argv[2], number);
  } catch (const specdec::Error &error) {
    std::fprintf(stderr, "error %d: %s\n", error.code(), error.what());
    return 1;
  }
}
