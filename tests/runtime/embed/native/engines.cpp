// engines: engines of the host under the loop: exact text, no lock held in forward, failures.
#include <specdec.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <thread>
#include <vector>

namespace {

constexpr int64_t width = 12, vocab = 10;  // two columns of padding, with the highest logits

// The token after t is t + 1, modulo the vocabulary.
struct Counter {
  std::vector<float> rows;
  int64_t cached = 0, closed = 0, fail = 0;
  void (*before)() = nullptr;

  specdec_engine engine() { return {this, vocab, width, 100, &forward, &truncate, &close}; }

  static int32_t forward(void *user, int64_t length, const int64_t *ids, size_t num_rows,
                         size_t num_logits, const float **logits) {
    auto &self = *static_cast<Counter *>(user);
    if (self.before != nullptr) self.before();
    if (self.fail == 1) return 5;
    if (self.fail == 2) throw std::runtime_error("out of memory bandwidth");
    if (self.fail == 3) return 0;
    if (length != self.cached) std::printf("length %ld, cached %ld\n", length, self.cached);
    self.cached += static_cast<int64_t>(num_rows);
    self.rows.assign(num_logits * width, 0.0F);
    for (size_t row = 0; row < num_logits; ++row) {
      float *out = &self.rows[row * width];
      out[(ids[num_rows - num_logits + row] + 1) % vocab] = 5.0F;
      out[vocab] = out[vocab + 1] = 50.0F;
    }
    *logits = self.rows.data();
    return 0;
  }
  static int32_t truncate(void *user, int64_t length) {
    static_cast<Counter *>(user)->cached = length;
    return 0;
  }
  static void close(void *user) { ++static_cast<Counter *>(user)->closed; }
};

std::atomic<bool> inside{false}, answered{false};

// Waits until another thread has used the library: with Python's lock held it never would.
void wait_for_other_thread() {
  inside = true;
  for (int i = 0; i < 5000 && !answered; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void released_lock(specdec::Decoder &decoder, Counter &target) {
  target.before = &wait_for_other_thread;
  std::thread other([&] {
    while (!inside) std::this_thread::yield();
    answered = decoder.info().max_length == 100;
  });
  decoder.generate(std::vector<specdec::Token>{1}, specdec::Options().max_new_tokens(1));
  other.join();
  target.before = nullptr;
  std::printf("lock released: %d\n", answered.load());
}

void failures(specdec::Decoder &decoder, Counter &target) {
  const std::vector<specdec::Token> one{1};
  for (int64_t fail = 1; fail <= 3; ++fail) {
    target.fail = fail;
    specdec::Status status;
    decoder.generate(one, {}, nullptr, status);
    std::printf("failure %d: %s\n", status.code, status.message.c_str());
  }
  target.fail = 0;
}

}  // namespace

int main() {
  Counter target, draft;
  const specdec_engine target_engine = target.engine(), draft_engine = draft.engine();
  {
    auto decoder = specdec::Decoder::over(target_engine, &draft_engine,
                                          specdec::Options().set("eos_token_ids", "[0]"));
    const auto result =
        decoder.generate(std::vector<specdec::Token>{2, 3}, specdec::Options().num_draft_tokens(3));
    std::printf("ids");
    for (const auto id : result.token_ids) std::printf(" %d", id);
    std::printf(" reason %d acceptance %g\n", static_cast<int>(result.finish_reason),
                result.stats.acceptance_rate);
    released_lock(decoder, target);
    failures(decoder, target);
    specdec::Status status;
    decoder.generate("text", {}, nullptr, status);
    std::printf("text: %d\n", status.code);
  }
  std::printf("closed %ld %ld\n", target.closed, draft.closed);
  specdec_engine wrong = target_engine;
  wrong.logits_width = vocab - 1;
  try {
    specdec::Decoder::over(wrong);
  } catch (const specdec::Error &error) {
    std::printf("wrong: %d\n", error.code());
  }
  return 0;
}
