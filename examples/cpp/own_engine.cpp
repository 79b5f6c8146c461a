// specdec's loop over engines of this program: a bigram model as target, a blunter one as draft.
//
//   own_engine
#include <specdec.hpp>

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

namespace {

const std::string sentence = "she sells sea shells on the sea shore. ";
const std::string letters = "aehlnorst .";

class Bigram {
 public:
  explicit Bigram(float sharpness) {
    scores_.assign(letters.size() * letters.size(), 0.0F);
    for (size_t i = 0; i < sentence.size(); ++i) {
      const size_t last = letters.find(sentence[i]);
      const size_t next = letters.find(sentence[(i + 1) % sentence.size()]);
      scores_[last * letters.size() + next] += sharpness;
    }
  }

  // Valid as long as this object.
  specdec_engine engine() {
    const auto width = static_cast<int64_t>(letters.size());
    return {this, width, width, 512, &Bigram::forward, nullptr, nullptr};
  }

 private:
  static int32_t forward(void *user, int64_t, const int64_t *ids, size_t num_rows,
                         size_t num_logits, const float **logits) {
    auto &self = *static_cast<Bigram *>(user);
    const size_t width = letters.size();
    self.rows_.resize(num_logits * width);
    for (size_t row = 0; row < num_logits; ++row) {
      const auto last = static_cast<size_t>(ids[num_rows - num_logits + row]);
      std::copy_n(&self.scores_[last * width], width, &self.rows_[row * width]);
    }
    *logits = self.rows_.data();
    return 0;
  }

  std::vector<float> scores_;  // [letter][next letter]
  std::vector<float> rows_;    // what the last forward handed out
};

}  // namespace

int main() {
  try {
    Bigram target(2.0F), draft(1.0F);
    const specdec_engine target_engine = target.engine(), draft_engine = draft.engine();
    auto decoder = specdec::Decoder::over(target_engine, &draft_engine);
    std::vector<specdec::Token> prompt;
    for (const char letter : std::string("she "))
      prompt.push_back(static_cast<specdec::Token>(letters.find(letter)));
    const auto result = decoder.generate(
        prompt,
        specdec::Options().max_new_tokens(60).temperature(1.0).seed(3).num_draft_tokens(4));
    std::cout << "she |";
    for (const auto token : result.token_ids) std::cout << letters[static_cast<size_t>(token)];
    std::cout << "|\nacceptance " << result.stats.acceptance_rate << '\n';
  } catch (const specdec::Error &error) {
    std::cerr << "error " << error.code() << ": " << error.what() << '\n';
    return 1;
  }
}
